# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from channel_tools.validate.processes import Deadline, running_program, wait_for_any
from tests.unit.validate.fakes import write_program

if TYPE_CHECKING:
    from pathlib import Path

LONG_S = 30.0
WAIT_FOREVER = """
    import os, signal, sys
    print(os.getpid(), flush=True)
    while True:
        signal.pause()
"""


def ends_within(descriptor: int, seconds: float) -> bool:
    return wait_for_any([descriptor], Deadline.after(seconds)) == (descriptor,)


def test_a_program_is_ended_with_its_block(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "forever", WAIT_FOREVER)
    with running_program(
        "forever", [program_file], env={}, cwd=tmp_path, log=tmp_path / "log", stdout=subprocess.PIPE
    ) as program:
        assert program.process.stdout is not None
        pid = int(program.process.stdout.readline())
        assert pid == program.process.pid
        assert not program.has_ended()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_it_is_ended_when_the_block_fails(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "forever", WAIT_FOREVER)
    with (
        pytest.raises(KeyboardInterrupt),
        running_program("forever", [program_file], env={}, cwd=tmp_path, log=tmp_path / "log") as program,
    ):
        raise KeyboardInterrupt
    assert program.has_ended()


def test_its_end_and_its_words_are_told(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "failing", "import sys; print('out'); sys.exit('no driver')")
    with running_program("failing", [program_file], env={}, cwd=tmp_path, log=tmp_path / "log") as program:
        assert ends_within(program.descriptor, LONG_S)
        assert program.end_in_words() == "exit status 1"
    assert "no driver" in program.tail()


def test_a_signal_is_named(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with running_program("killed", [program_file], env={}, cwd=tmp_path, log=tmp_path / "log") as program:
        assert program.end_in_words() == "signal SIGKILL"


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    with running_program("absent", [tmp_path / "absent"], env={}, cwd=tmp_path, log=tmp_path / "log") as program:
        assert program.end_in_words() == "exit status 1"
    assert "absent: cannot be started: No such file" in program.tail()


def test_waiting_ends_with_the_deadline(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "forever", WAIT_FOREVER)
    with running_program("forever", [program_file], env={}, cwd=tmp_path, log=tmp_path / "log") as program:
        assert wait_for_any([program.descriptor], Deadline.after(0.05)) == ()


def test_kill_9_of_the_starter_ends_the_program(tmp_path: Path) -> None:
    program_file = write_program(tmp_path / "forever", WAIT_FOREVER)
    starter = f"""
        import signal, sys
        from pathlib import Path
        from channel_tools.validate.processes import running_program
        folder = Path({str(tmp_path)!r})
        with running_program("p", [{str(program_file)!r}], env={{}}, cwd=folder, log=folder / "log", stdout=1):
            signal.pause()
    """
    code = "\n".join(line.removeprefix("        ") for line in starter.splitlines())
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        descriptor = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        assert ends_within(descriptor, LONG_S)
        os.close(descriptor)


def test_the_earlier_of_two_deadlines_counts() -> None:
    soon, late = Deadline.after(1), Deadline.after(100)
    assert soon.capped(100) is soon
    assert late.capped(1).limit_s == 1
