# SPDX-License-Identifier: BSD-3-Clause
"""Starts other programs: commands to wait for, and programs that run in the background.

Each command is logged shell-quoted before it runs, gets no terminal input, and runs in its own process group so that
an interrupt or a deadline ends its children too. The kernel signals programs that must not outlive this process when it
dies, however that happens; waiting for running programs uses their descriptors, without polling (Linux 5.3 and later).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import CommandError
from channel_tools.system.files import read_tail
from channel_tools.system.kernel import all_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)
_POLL_S = 0.2
_TERMINATE_GRACE_S = 5.0
DYING_S = 30.0
"""Processes that use much memory take long to end. What takes longer, the kernel may block for ever (state D)."""
_LOOK_S = 0.005
_TAIL_LINES = 20
_STDERR = 2
_HELD_S = 10.0
"""How long the output of a program that has ended is read if a process that it left running has it open.

ssh leaves such a process with ControlPersist, for hours.
"""


PR_SET_PDEATHSIG = 1

# Runs between fork and exec of a program: asks the kernel to signal it when the process that starts it ends, and resets
# the handler of that signal (0 is the default), since shells start background programs with SIGINT ignored.
_LAUNCHER = f"""
import ctypes, os, sys
libc, number = ctypes.CDLL(None), int(sys.argv[2])
libc.signal(number, None)
libc.prctl({PR_SET_PDEATHSIG}, number)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that started this one has ended")
try:
    os.execvpe(sys.argv[3], sys.argv[3:], os.environ)
except OSError as err:
    sys.exit(f"{{sys.argv[3]}}: cannot be started: {{err.strerror}}")
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandResult:
    """The result of a finished command: its exit status, and its output as text."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    def tail(self) -> str:
        """The last lines that the command printed, for an error message."""
        return last_lines(self.stderr.strip() or self.stdout)


class CommandTimeoutError(CommandError):
    """A program was ended because it took too long."""


def run_command(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    content: bytes | None = None,
    timeout_s: float | None = None,
    check: bool = True,
) -> CommandResult:
    """Run ``command`` to its end and return what it printed.

    ``env`` replaces the environment (None: inherit), ``content`` is its standard input (None: empty). Raises
    CommandError if the program is not installed, if it runs longer than ``timeout_s`` (CommandTimeoutError) and, with
    ``check``, if its exit status is not 0; the message has the command and its last lines.
    """
    words = tuple(str(word) for word in command)
    _log.info("$ %s", shlex.join(words))
    with contextlib.nullcontext(subprocess.DEVNULL) if content is None else _in_memory(content) as stdin:
        process = start_command(words, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with _ended_on_error(process):
        output = output_of(process, words, timeout_s=timeout_s)
    result = _result(words, process, output)
    if check and result.returncode != 0:
        raise CommandError(f"{shlex.join(words)}: exit status {result.returncode}\n{result.tail()}")
    return result


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[int]:
    """A file with this content, on no disk, to be read from its start.

    Through a pipe, what a slow program has not taken at communicate's first time limit is never sent (CPython 3.11).
    """
    with os.fdopen(os.memfd_create("standard input"), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def output_of(
    process: subprocess.Popen[bytes],
    words: Sequence[str],
    *,
    timeout_s: float | None = None,
    held_s: float = _HELD_S,
    on_wait: Callable[[bytes], None] = lambda _printed: None,
) -> tuple[bytes, bytes]:
    """What a started program prints until it ends.

    A process that it leaves running may have its output open for ever: that is read for ``held_s`` more, and a warning
    says so. ``on_wait`` is called a few times a second with what was printed so far. Raises CommandTimeoutError if the
    program runs longer than ``timeout_s``.
    """
    limit = None if timeout_s is None else Deadline.after(timeout_s)
    held: Deadline | None = None
    while True:
        wait_s = _POLL_S if limit is None else min(_POLL_S, limit.left_s())
        try:
            return process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired as err:  # its output is everything printed so far
            printed = (err.output or b"", err.stderr or b"")
        on_wait(printed[0])
        if process.poll() is None:
            if limit is not None and not limit.left_s():
                raise CommandTimeoutError(f"{shlex.join(words)}: did not finish within {timeout_s:g} s")
            continue
        held = held or Deadline.after(held_s)
        if not held.left_s():
            _log.warning("%s has ended, but a process that it left running has its output open: not read on", words[0])
            _close_streams(process)
            return printed


def watch_command(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    poll: Callable[[], None],
    on_line: Callable[[str], None] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> CommandResult:
    """Run ``command`` to its end, calling ``poll`` a few times a second and ``on_line`` for each line it prints.

    The caller checks the exit status. An interrupt, or an exception from ``poll``, ends the program and its children;
    so does the end of this process, however it ends: a download that continued would write to the files of the next
    run. Raises CommandError if the program is not installed.
    """
    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise _not_found(command[0])
    process = start_command(
        command,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        death_signal=signal.SIGKILL,
    )
    handed_on = 0

    def hand_on(printed: bytes) -> None:
        nonlocal handed_on
        if on_line is not None:
            for line in printed[handed_on:].splitlines():
                on_line(line.decode(errors="replace"))
        handed_on = max(handed_on, len(printed))
        poll()

    with _ended_on_error(process):
        output = output_of(process, command, on_wait=lambda printed: hand_on(printed[: printed.rfind(b"\n") + 1]))
        hand_on(output[0])
    return _result(tuple(command), process, output)


def start_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    death_signal: signal.Signals | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in its own process group, by default without standard input.

    ``pass_fds`` are further descriptors that it gets, under the same numbers.

    The program gets ``death_signal`` when the thread that started it ends, even by kill -9; with it, a program that
    cannot be started says so on its standard error and exits with status 1. Without it, that raises CommandError.
    """
    words = list(command)
    if death_signal is not None:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(int(death_signal))]
        words = [*launcher, *command]
    try:
        return subprocess.Popen(
            words,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except FileNotFoundError as err:
        if cwd is not None and not cwd.is_dir():
            raise CommandError(f"{cwd}: the folder to run {command[0]} in does not exist") from None
        raise _not_found(err.filename) from None
    except OSError as err:
        raise CommandError(f"{command[0]}: cannot be started: {err.strerror}") from None


def run_in_foreground(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run ``command`` to its end in this process's terminal and group; returns its status, or 128 + a signal's number.

    Raises CommandError if it cannot be started.
    """
    _log.info("$ %s", shlex.join(command))
    try:
        status = subprocess.run(command, cwd=cwd, env=dict(env), check=False).returncode
    except FileNotFoundError as err:
        raise _not_found(err.filename) from None
    return status if status >= 0 else 128 - status


def pass_on_errors(data: bytes) -> None:
    """Write what another program printed to this process's standard error, as if the program had inherited it.

    That is the descriptor, whatever stands in ``sys.stderr``. What a full disk or a closed descriptor does not take is
    lost; BrokenPipeError is raised if nobody reads any more.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(_STDERR, rest) :]
        except BlockingIOError:  # who shares it has made it so
            select.select([], [_STDERR], [])
        except BrokenPipeError:
            raise
        except OSError:
            return


def end_process_group(*processes: subprocess.Popen[bytes], grace_s: float = _TERMINATE_GRACE_S) -> None:
    """Terminate the process groups of ``processes``, all at once, and kill what is left after ``grace_s``.

    When it returns, none of their processes is running, but for those that a warning names: what SIGKILL does not end
    within DYING_S is left behind.
    """
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    grace = Deadline.after(grace_s)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=grace.left_s())
        _signal_group(process, signal.SIGKILL)
    dying = Deadline.after(DYING_S)
    for process in processes:
        remaining = _await_end_of_group(process, dying)
        if remaining:
            _log.warning("%s", left_in_words(remaining))
        _close_streams(process)


def _close_streams(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):  # the rest of its input
                stream.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """A point in time by the monotonic clock, and the limit that it was made from."""

    limit_s: float
    at: float

    @classmethod
    def after(cls, limit_s: float) -> Deadline:
        """The deadline ``limit_s`` seconds from now."""
        return cls(limit_s=limit_s, at=time.monotonic() + limit_s)

    def left_s(self) -> float:
        """Seconds left, not below 0."""
        return max(0.0, self.at - time.monotonic())

    def capped(self, limit_s: float) -> Deadline:
        """The earlier of this one and ``limit_s`` from now."""
        other = Deadline.after(limit_s)
        return other if other.at < self.at else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A running program; what it prints to stderr, and to stdout unless that is a pipe, goes to ``log``."""

    name: str
    process: subprocess.Popen[bytes]
    descriptor: int
    log: Path

    def has_ended(self) -> bool:
        """Whether the program has ended, without waiting."""
        return self.process.poll() is not None

    def end_in_words(self) -> str:
        """How it ended, ``exit status 1`` or ``signal SIGKILL``; waits for the end."""
        code = self.process.wait()
        return f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def tail(self) -> str:
        """The last lines of its log."""
        return last_lines(read_tail(self.log))


@contextlib.contextmanager
def running_program(
    name: str,
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    stdout: int | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> Iterator[Program]:
    """Run ``command`` while the block runs; its process group is ended when the block is left in any way.

    ``stdout`` None sends it to the log. The program gets ``death_signal`` when the thread that started it ends.
    """
    with log.open("wb") as stream:
        process = start_command(
            [str(word) for word in command],
            cwd=cwd,
            env=env,
            stdout=stream.fileno() if stdout is None else stdout,
            stderr=stream.fileno(),
            death_signal=death_signal,
        )
    try:
        descriptor = os.pidfd_open(process.pid)
        try:
            yield Program(name=name, process=process, descriptor=descriptor, log=log)
        finally:
            os.close(descriptor)
    finally:
        end_process_group(process)


def wait_for_any(descriptors: Iterable[int], deadline: Deadline | None = None) -> tuple[int, ...]:
    """The descriptors that are ready (of ended processes, of pipes with input); empty if the time ran out."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    limit_ms = None if deadline is None else deadline.left_s() * 1000
    return tuple(descriptor for descriptor, _ in poll.poll(limit_ms))


@contextlib.contextmanager
def _ended_on_error(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        end_process_group(process)
        raise


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _await_end_of_group(leader: subprocess.Popen[bytes], deadline: Deadline) -> list[int]:
    """Wait until all processes of a killed group have ended; returns those that have not by the deadline."""
    try:
        leader.wait(timeout=deadline.left_s())
    except subprocess.TimeoutExpired:
        return [leader.pid]
    with contextlib.suppress(ProcessLookupError):  # none is left, not even as a zombie
        while True:
            os.killpg(leader.pid, 0)
            remaining = [
                process.number for process in all_processes() if process.group == leader.pid and not process.is_zombie
            ]
            if not remaining or not deadline.left_s():
                return remaining
            time.sleep(_LOOK_S)
    return []


def left_in_words(processes: Iterable[int]) -> str:
    """What to say of processes that SIGKILL did not end."""
    numbers = ", ".join(map(str, sorted(processes)))
    return (
        f"left behind: process {numbers}, which did not end within {DYING_S:g} s of SIGKILL: the kernel waits in it "
        f"for a device or a file system; ps -o state,wchan:30,args -p {numbers.replace(' ', '')} says where"
    )


def _result(command: tuple[str, ...], process: subprocess.Popen[bytes], output: tuple[bytes, bytes]) -> CommandResult:
    stdout, stderr = (printed.decode(errors="replace") for printed in output)
    return CommandResult(command=command, returncode=process.returncode, stdout=stdout, stderr=stderr)


def _not_found(program: str) -> CommandError:
    return CommandError(f"{program}: the program was not found", hint=f"install {program} or put it on the PATH")


def last_lines(text: str) -> str:
    """The last lines of what a program printed, for an error message."""
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
