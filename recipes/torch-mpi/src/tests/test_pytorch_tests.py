# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of process groups over MPI, as far as they apply; with --pytorch-tests, for they take minutes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ALLOWED, TESTS

RANKS = 3
LIMIT_S = 900
# Not the tests of DDP, which use CUDA without asking for it.
WORDS = ("all_reduce", "broadcast", "gather", "scatter", "test_reduce_", "all_to_all", "barrier", "send", "recv")
FEWEST = 43


def test_the_collectives_and_messages_pass(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if not request.config.getoption("--pytorch-tests"):
        pytest.skip("PyTorch's own tests take minutes: --pytorch-tests runs them")
    variables = {**os.environ, **ALLOWED, "TEMP_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    mpiexec = Path(sys.prefix, "bin", "mpiexec")
    done = subprocess.run(
        [mpiexec, "-n", str(RANKS), sys.executable, TESTS / "pytorch_tests.py", *WORDS],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-20_000:]
    for rank in range(RANKS):
        outcomes = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        assert {name: said for name, said in outcomes.items() if said.startswith("failed")} == {}
        assert list(outcomes.values()).count("passed") >= FEWEST, outcomes
