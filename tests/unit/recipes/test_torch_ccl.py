# SPDX-License-Identifier: BSD-3-Clause
"""What recipes/torch-ccl puts before the library that it builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import TEST_TIMEOUT_S

CHECK = Path(__file__).parents[3] / "recipes/torch-ccl/package/pytorch_version.py"


@pytest.mark.parametrize(
    ("found", "error"),
    [
        pytest.param("2.13.0+cpu", "", id="as-built"),
        pytest.param("2.13.2", "", id="patch-release"),
        pytest.param(
            "2.12.1",
            "ImportError: this build of torch-ccl is for PyTorch 2.13, found PyTorch 2.12.1 in {torch}: install "
            "'torch-ccl' and 'pytorch=2.13' from one channel, or a torch-ccl that is for PyTorch 2.12",
            id="another-minor",
        ),
    ],
)
def test_a_pytorch_of_another_minor_version_is_one_error(tmp_path: Path, found: str, error: str) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(f"__version__ = {found!r}\n", encoding="utf-8")
    check = tmp_path / "check.py"
    check.write_text(CHECK.read_text(encoding="utf-8").replace("@PYTORCH@", "2.13"), encoding="utf-8")
    done = subprocess.run([sys.executable, check], capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
    assert (done.stderr.splitlines() or [""])[-1] == error.format(torch=torch)
    assert done.returncode == (1 if error else 0)
