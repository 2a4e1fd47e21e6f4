# SPDX-License-Identifier: BSD-3-Clause
"""The Makefile in the root of the tree: when ``make setup`` installs anew."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("changed", "is_up_to_date"),
    [("pyproject.toml", False), ("channel_tools/__init__.py", False), ("channel_tools/py.typed", True)],
    ids=["dependencies", "version", "other"],
)
def test_setup_installs_anew_when_what_is_installed_has_changed(
    tmp_path: Path, changed: str, *, is_up_to_date: bool
) -> None:
    (tmp_path / ".installed").touch()
    question = ["make", "--question", f"--what-if={changed}", "setup", f"VENV={tmp_path}"]
    asked = subprocess.run(question, cwd=ROOT, capture_output=True, text=True, check=False)
    assert asked.returncode == (0 if is_up_to_date else 1), asked.stderr
