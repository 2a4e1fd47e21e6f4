# SPDX-License-Identifier: BSD-3-Clause
"""Golden files: what a stage gave when it was last looked at.

A test whose file differs fails with the command that writes the file anew; read the difference before that.
"""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

_REFRESH = "REFRESH_GOLDEN"
_ROOT = Path(__file__).parents[2]


def assert_golden(path: Path, text: str) -> None:
    """``text`` must be the content of ``path``; with REFRESH_GOLDEN=1 in the environment it becomes that.

    Raises AssertionError with the lines that differ and the command that writes the file for the test that runs.
    """
    if os.environ.get(_REFRESH):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    name = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path
    assert path.is_file(), f"{name} is missing; write it with: {_renewal()}"
    golden = path.read_text(encoding="utf-8")
    if text != golden:
        lines = difflib.unified_diff(golden.splitlines(), text.splitlines(), str(name), "this run", lineterm="")
        message = "\n".join([f"{name} differs; if this run is right, renew it with: {_renewal()}", *lines])
        raise AssertionError(message)


def _renewal() -> str:
    """The command that runs the current test, which pytest names, and lets it write its golden files."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]  # without the phase, as in "... (call)"
    return f"{_REFRESH}=1 .venv/bin/python -m pytest -n 0 {shlex.quote(test)}"
