# SPDX-License-Identifier: BSD-3-Clause
"""How a rank's script ends under fork_ranks.py: as under Python and torchrun. PyTorch is a stand-in without threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.ranks import launchers
from tests.support.processes import TEST_TIMEOUT_S

_TORCH = "class TCPStore:\n    port = 29500\n    def __init__(self, *_, **__): pass\n"
_BEGINNING = """\
import os, sys
sys.stdout.write(os.environ["MASTER_PORT"] + "\\n")
if os.environ["RANK"] == "0":
    sys.exit(0)
"""


def run(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Two ranks, of which rank 1 ends by the line and rank 0 by sys.exit(0)."""
    module = folder / "modules/torch/distributed/__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text(_TORCH)
    script = folder / "train.py"
    script.write_text(_BEGINNING + line)
    fork_ranks = Path(launchers.__file__).with_name("fork_ranks.py")
    return subprocess.run(
        [sys.executable, fork_ranks, "2", "torch.distributed", script],
        env={**os.environ, "PYTHONPATH": str(folder / "modules")},
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
        check=False,
    )


@pytest.mark.parametrize("line", ["pass", "sys.exit()", "sys.exit(0)"])
def test_a_script_that_ends_normally_is_no_failure(tmp_path: Path, line: str) -> None:
    result = run(tmp_path, line)
    assert (result.returncode, result.stdout, result.stderr) == (0, "29500\n" * 2, "")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no data')", 1, "no data\n"),
        ("sys.exit(('a', 1))", 1, "('a', 1)\n"),
    ],
)
def test_a_failure_has_the_code_and_the_words_of_the_script(tmp_path: Path, line: str, code: int, said: str) -> None:
    result = run(tmp_path, line)
    assert result.returncode == 1
    assert result.stderr == f"{said}failed (exitcode: {code}) local_rank: 1\n"


def test_an_uncaught_error_is_told_by_the_hook(tmp_path: Path) -> None:
    line = "sys.excepthook = lambda kind, error, trace: print('told', error, file=sys.stderr)\nraise KeyError('x')"
    result = run(tmp_path, line)
    assert result.stderr == "told 'x'\nfailed (exitcode: 1) local_rank: 1\n"
