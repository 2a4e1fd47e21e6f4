# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.system import processes
from channel_tools.system.errors import CommandError
from channel_tools.system.kernel import ProcessEntry, all_processes
from channel_tools.system.processes import (
    Deadline,
    end_process_group,
    pass_on_errors,
    run_command,
    running_program,
    start_command,
    wait_for_any,
    watch_command,
)
from channel_tools.system.workers import signals_held, signals_released
from tests.support.processes import TEST_TIMEOUT_S, assert_ended, beyond_kill
from tests.unit.validate.fakes import write_program


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


def test_deadline_ends_the_children_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    children: list[int] = []

    def start(words: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        process = start_command(words, **options)  # type: ignore[arg-type]
        children.append(int(pipe.read_text()))  # the time begins when the child is there
        return process

    monkeypatch.setattr(processes, "start_command", start)
    with pytest.raises(CommandError, match=r"did not finish within 0\.1 s"):
        run_command(["sh", "-c", f"sleep 600 & echo $! > {pipe}; wait"], timeout_s=0.1)
    assert len(children) == 1
    assert_ended(children)


def test_lines_and_output_of_a_program_are_handed_on(tmp_path: Path) -> None:
    lines: list[str] = []
    script = "import sys; print('one'); print('two'); sys.stderr.write('bad\\n'); sys.exit(3)"
    result = watch_command(
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
        watch_command([sys.executable, "-c", script], cwd=tmp_path, env=dict(os.environ), poll=interrupt)
    assert os.read(reading, 1) == b""  # nobody holds the other end
    os.close(reading)


def test_a_program_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", "import sys; sys.stdin = open(sys.argv[1]); sys.stdin.read()", str(pipe)]
    script = (
        "import os, pathlib; from channel_tools.system.processes import watch_command\n"
        f"watch_command({command!r}, cwd=pathlib.Path('/'), env=dict(os.environ), poll=lambda: None)"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as run:
        writing = os.open(pipe, os.O_WRONLY)  # waits until the program has opened the other end
        run.kill()
    poll = select.poll()
    poll.register(writing, select.POLLERR)
    ended = poll.poll(TEST_TIMEOUT_S * 1000)
    os.close(writing)
    assert ended, "the program still holds its end of the pipe"


def test_a_program_that_is_not_there_is_a_command_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="absent-program"):
        watch_command(["absent-program"], cwd=tmp_path, env={}, poll=lambda: None)


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
        assert ends_within(program.descriptor, TEST_TIMEOUT_S)
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
        from channel_tools.system.processes import running_program
        folder = Path({str(tmp_path)!r})
        with running_program("p", [{str(program_file)!r}], env={{}}, cwd=folder, log=folder / "log", stdout=1):
            signal.pause()
    """
    code = "\n".join(line.removeprefix("        ") for line in starter.splitlines())
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        descriptor = os.pidfd_open(int(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        assert ends_within(descriptor, TEST_TIMEOUT_S)
        os.close(descriptor)


def test_the_earlier_of_two_deadlines_counts() -> None:
    soon, late = Deadline.after(1), Deadline.after(100)
    assert soon.capped(100) is soon
    assert late.capped(1).limit_s == 1


def test_a_child_forked_while_signals_are_held_has_none_of_its_parents_handlers_run() -> None:
    """A server that was ended while it started had workers that went on: what a handler raises is lost after a fork."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        with signals_held():
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGTERM)
                if heard:
                    os._exit(1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signals_released()
                os._exit(2)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # others' threads do not hold it
            assert not heard
        assert heard == [signal.SIGTERM]
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_group_is_waited_for_until_all_of_it_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = subprocess.Popen(["sleep", "1000"], process_group=0)
    looks: list[ProcessEntry] = []

    def looked() -> Iterator[ProcessEntry]:
        for one in all_processes():
            if one.number == member.pid:
                looks.append(one)
                one = replace(one, is_zombie=len(looks) == 3)  # noqa: PLW2901
            yield one

    with subprocess.Popen(["sleep", "1000"], process_group=leader.pid) as member:
        monkeypatch.setattr(processes, "all_processes", looked)
        end_process_group(leader)
        assert len(looks) == 3


def test_groups_that_do_not_end_by_themselves_share_one_grace() -> None:
    ignoring = ["sh", "-c", "trap '' TERM; echo; exec sleep 1000"]
    groups = [start_command(ignoring, stdout=subprocess.PIPE) for _ in range(4)]
    for process in groups:
        assert process.stdout is not None
        process.stdout.readline()  # it ignores SIGTERM by now
    started_s = time.monotonic()
    end_process_group(*groups, grace_s=1.0)
    assert time.monotonic() - started_s < 3.0  # four graces take 4 s
    assert [process.returncode for process in groups] == [-signal.SIGKILL] * 4


_ENDING = """
from channel_tools.system import processes

processes.DYING_S = 0.5
leader = processes.start_command(["sleep", "1000"])
print(leader.pid, flush=True)
input()
processes.end_process_group(leader, grace_s=0)
"""


def test_what_even_sigkill_does_not_end_is_named_and_not_waited_for() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _ENDING], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as ending:
        assert ending.stdout is not None
        leader = int(ending.stdout.readline())
        with beyond_kill(leader):
            _, said = ending.communicate("\n", timeout=TEST_TIMEOUT_S)
    assert f"left behind: process {leader}, which did not end within 0.5 s of SIGKILL" in said
    assert ending.returncode == 0


def test_a_program_that_is_slow_to_read_gets_all_of_its_input() -> None:
    slow = "import sys, time; time.sleep(1); print(len(sys.stdin.buffer.read()))"
    done = run_command([sys.executable, "-c", slow], content=b"x" * 300_000, timeout_s=TEST_TIMEOUT_S)
    assert done.stdout == "300000\n"


@pytest.mark.parametrize("stream", [io.StringIO(), None], ids=["text", "none"])
def test_errors_are_passed_on_by_the_descriptor_whatever_the_stream_is(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    pass_on_errors(b"one\ntwo")
    assert capfd.readouterr().err == "one\ntwo"


# writes more than a pipe holds to a standard error that does not wait, then what it has left
_PASSES_ON = """
import os
from channel_tools.system.processes import pass_on_errors
os.set_blocking(2, False)
pass_on_errors(b"x" * 1_000_000)
os.close(2)
pass_on_errors(b"lost")
"""


def test_errors_are_passed_on_whole_to_a_pipe_that_does_not_wait() -> None:
    result = subprocess.run([sys.executable, "-c", _PASSES_ON], stderr=subprocess.PIPE, check=True)
    assert result.stderr == b"x" * 1_000_000


HOLDER = "sleep 600 & echo $!; echo its-error >&2; exit 3"
"""A shell that ends, and leaves a process that has its output open, as ssh does with ControlPersist."""


@pytest.mark.parametrize("way", ["run", "watch", "with-a-limit"])
def test_what_is_left_with_the_output_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    monkeypatch.setattr(
        processes.output_of, "__kwdefaults__", {**(processes.output_of.__kwdefaults__ or {}), "held_s": 0.1}
    )
    words = ["sh", "-c", HOLDER]
    if way == "watch":
        result = watch_command(words, cwd=tmp_path, env=os.environ, poll=lambda: None)
    else:
        result = run_command(words, check=False, timeout_s=60.0 if way == "with-a-limit" else None)
    try:
        assert (result.returncode, result.stderr) == (3, "its-error\n")
        assert "sh has ended, but a process that it left running has its output open" in caplog.text
    finally:
        os.kill(int(result.stdout), signal.SIGKILL)
