# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from channel_tools.commands import run_command
from channel_tools.errors import CommandError


def test_output_is_captured_and_input_is_closed() -> None:
    result = run_command([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"])
    assert result.stdout == "''\n"


def test_failure_holds_command_status_and_last_lines() -> None:
    script = "import sys; print('x' * 3, file=sys.stderr); sys.exit(3)"
    with pytest.raises(CommandError, match=r"exit status 3\nxxx"):
        run_command([sys.executable, "-c", script])
    assert run_command([sys.executable, "-c", script], check=False).returncode == 3


def test_missing_program_is_named() -> None:
    with pytest.raises(CommandError, match="no-such-program-here: the program was not found"):
        run_command(["no-such-program-here"])


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="does not exist"):
        run_command(["true"], cwd=tmp_path / "absent")


def test_deadline_ends_the_children_too(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {marker}; wait"
    with pytest.raises(CommandError, match=r"did not end within 0\.5 s"):
        run_command(["sh", "-c", script], timeout_s=0.5)
    child = int(marker.read_text())
    with pytest.raises(ProcessLookupError):
        _wait_until_gone(child)


def _wait_until_gone(pid: int) -> None:
    for _ in range(100_000):
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            raise ProcessLookupError
