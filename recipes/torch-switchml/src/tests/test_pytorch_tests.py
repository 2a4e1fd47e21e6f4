# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own tests of process groups pass with the plugin on: a chosen few, or all with --pytorch-tests all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Transport

# Those that failed under the plugin where they passed with gloo, and one of each kind that meets it.
CHOSEN = (
    "test_all_reduce_sum",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_all_reduce_coalesced_sum",
    "test_ddp_logging_data_cpu",
)
LIMIT_S = 300
LIMIT_OF_ALL_S = 3600


def run_pytorch_tests(folder: Path, transport: Transport, names: tuple[str, ...], limit_s: float) -> str:
    """What the tests' runner printed, which has to have ended well."""
    environment = {
        **os.environ,
        **transport.environment,
        "TEMP_DIR": str(folder),
        "SWITCHML_STATS_FILE": str(folder / "report.{rank}.json"),
        "OMP_NUM_THREADS": "1",
    }
    found = subprocess.run(
        [sys.executable, "-c", "import numpy, expecttest"], env=environment, capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        pytest.skip(f"PyTorch's own tests need numpy and expecttest: {found.stderr.strip().splitlines()[-1]}")
    script = Path(__file__).with_name("pytorch_tests.py")
    result = subprocess.run(
        [sys.executable, script, *(f"TestGroups.{name}" for name in names)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-20_000:]
    return result.stderr


def test_chosen_ones_pass(tmp_path: Path, transport: Transport) -> None:
    said = run_pytorch_tests(tmp_path, transport, CHOSEN, LIMIT_S)
    assert re.search(rf"Ran {len(CHOSEN)} tests", said)
    assert "skipped" not in said
    assert "switchml" in (tmp_path / "report.0.json").read_text()


def test_all_pass(tmp_path: Path, transport: Transport, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--pytorch-tests") != "all":
        pytest.skip("all of PyTorch's own tests take several minutes: --pytorch-tests all")
    print(run_pytorch_tests(tmp_path, transport, (), LIMIT_OF_ALL_S)[-2000:])
