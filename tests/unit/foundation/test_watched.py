# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from channel_tools.errors import CommandError
from channel_tools.foundation.watched import GrowthReport, run_watched
from tests.unit.foundation.registries import NotedProgress

if TYPE_CHECKING:
    from pathlib import Path


def test_growth_is_reported_once_also_when_the_file_moves(tmp_path: Path) -> None:
    progress = NotedProgress()
    with progress.task("files", total=10) as task:
        report = GrowthReport(task, [tmp_path], ["x.whl"])
        (tmp_path / "temporary").mkdir()
        (tmp_path / "temporary" / "x.whl").write_bytes(b"1234")
        (tmp_path / "other").write_bytes(b"12345678")
        report.poll()
        assert progress.advanced == {"files": 4}
        (tmp_path / "temporary" / "x.whl").rename(tmp_path / "x.whl")
        report.poll()
        (tmp_path / "x.whl").write_bytes(b"1234567890")
        report.poll()
    assert progress.advanced == {"files": 10}


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    progress = NotedProgress()
    with progress.task("files", total=None) as task:
        GrowthReport(task, [tmp_path / "absent"], ["x"]).poll()
    assert progress.advanced == {}


def test_lines_and_output_of_a_program_are_handed_on(tmp_path: Path) -> None:
    lines: list[str] = []
    script = "import sys; print('one'); print('two'); sys.stderr.write('bad\\n'); sys.exit(3)"
    result = run_watched(
        [sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), poll=lambda: None, on_line=lines.append
    )
    assert lines == ["one", "two"]
    assert (result.returncode, result.stdout, result.stderr) == (3, "one\ntwo\n", "bad\n")


def test_an_interrupt_ends_the_program(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"import signal; stream = open({str(pipe)!r}, 'w'); signal.pause()"
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_watched([sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), poll=interrupt)
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)


def test_a_program_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", "import sys; sys.stdin = open(sys.argv[1]); sys.stdin.read()", str(pipe)]
    script = (
        "import os, pathlib; from channel_tools.foundation.watched import run_watched\n"
        f"run_watched({command!r}, cwd=pathlib.Path('/'), env=dict(os.environ), poll=lambda: None)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as run:
        writing = os.open(pipe, os.O_WRONLY)  # waits until the program has opened the other end
        run.kill()
    poll = select.poll()
    poll.register(writing, select.POLLERR)
    ended = poll.poll(60_000)
    os.close(writing)
    assert ended, "the program still holds its end of the pipe"


def test_a_program_that_is_not_there_is_a_command_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="absent-program"):
        run_watched(["absent-program"], cwd=tmp_path, env={}, poll=lambda: None)
