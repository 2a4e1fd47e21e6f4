# SPDX-License-Identifier: BSD-3-Clause
"""Starts other programs: commands that are waited for, and programs that run beside this one.

Each command is logged shell-quoted before it runs, gets no terminal input, and runs in its own process group so that
an interrupt or a deadline ends its children too. What must not outlive this process, however it ends, has the kernel
signal it at this process's death; running programs are waited for through their descriptors, without asking in turns
(Linux 5.3 and later).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import CommandError
from channel_tools.system.files import read_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_log = logging.getLogger(__name__)
_POLL_S = 0.2
_TERMINATE_GRACE_S = 5.0
_DYING_S, _LOOK_S = 30.0, 0.005
_TAIL_LINES = 20
_SSH_CONNECT_S = 10
_SSH_LIMIT_S = 30.0
_DRAIN_S = 1.0
_SRUNS_END = re.compile(r"srun: (error: .*: tasks? .*: Exited with exit code |Terminating )")
PR_SET_PDEATHSIG = 1

# Between fork and exec of a program: have the kernel signal it when the process that starts it ends, and have it hear
# that signal (handler 0 is the default): shells start what they run in the background with SIGINT ignored.
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
    """What a finished command left: its exit status and its output as text."""

    command: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    def tail(self) -> str:
        """The last lines the command printed, for an error message."""
        return _last_lines(self.stderr.strip() or self.stdout)


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

    ``env`` replaces the environment (None: inherit), ``content`` is what the command reads (None: nothing). Raises
    CommandError when the program is not installed, when it outruns ``timeout_s`` and, with ``check``, when it exits
    non-zero; the message holds the command and its last lines.
    """
    words = tuple(str(word) for word in command)
    _log.info("$ %s", shlex.join(words))
    stdin = subprocess.DEVNULL if content is None else subprocess.PIPE
    process = start_command(words, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with _ended_on_error(process):
        try:
            output = process.communicate(content, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{shlex.join(words)}: did not end within {timeout_s:g} s") from None
    result = _result(words, process, output)
    if check and result.returncode != 0:
        raise CommandError(f"{shlex.join(words)}: exit status {result.returncode}\n{result.tail()}")
    return result


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

    The exit status is the caller's to judge. An interrupt, or what ``poll`` raises, ends the program and its children;
    so does the end of this process, however it comes: a download that went on alone would write into the files of the
    next run. Raises CommandError when the program is not installed.
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
    output: tuple[bytes, bytes] | None = None
    with _ended_on_error(process):
        while output is None:
            try:
                output = process.communicate(timeout=_POLL_S)
                printed = output[0]
            except subprocess.TimeoutExpired as err:  # whose output is all that was printed until now
                printed = (err.output or b"")[: (err.output or b"").rfind(b"\n") + 1]
            if on_line is not None:
                for line in printed[handed_on:].splitlines():
                    on_line(line.decode(errors="replace"))
            handed_on = len(printed)
            poll()
    return _result(tuple(command), process, output)


def start_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    stderr: int | None = None,
    death_signal: signal.Signals | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``command`` in a process group of its own, by default without standard input.

    The program gets ``death_signal`` when the thread that started it ends, be it by kill -9; a program that cannot be
    started then says so on its standard error and ends with status 1. Else raises CommandError if it cannot.
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
            start_new_session=True,
        )
    except FileNotFoundError as err:
        if cwd is not None and not cwd.is_dir():
            raise CommandError(f"{cwd}: the folder to run {command[0]} in does not exist") from None
        raise _not_found(err.filename) from None
    except OSError as err:
        raise CommandError(f"{command[0]}: cannot be started: {err.strerror}") from None


def run_in_foreground(command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> int:
    """Run ``command`` to its end with this process's terminal and group; returns its status, 128 + the signal's number.

    Raises CommandError when it cannot be started.
    """
    _log.info("$ %s", shlex.join(command))
    try:
        status = subprocess.run(command, cwd=cwd, env=dict(env), check=False).returncode
    except FileNotFoundError as err:
        raise _not_found(err.filename) from None
    return status if status >= 0 else 128 - status


def ssh_command(host: str) -> tuple[str, ...]:
    """The words before a command that runs on another host; never asks for a password."""
    return ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_SSH_CONNECT_S}", host, "--")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOutput:
    """What a command printed on a host, and when that was read; ``error``: why it failed, in its last words."""

    output: str
    error: str
    read_at: float


def run_on_hosts(
    commands: Mapping[str, Sequence[str]], *, env: Mapping[str, str], limit_s: float = _SSH_LIMIT_S
) -> dict[str, HostOutput]:
    """Run a command for each host, by its name, at the same time; who has not ended after ``limit_s`` is ended."""
    pipe = subprocess.PIPE
    started = {host: start_command(words, env=env, stdout=pipe, stderr=pipe) for host, words in commands.items()}
    until = time.monotonic() + limit_s
    outputs = {}
    try:
        for host, process in started.items():
            try:
                printed, said = process.communicate(timeout=max(until - time.monotonic(), _DRAIN_S))
            except subprocess.TimeoutExpired:
                outputs[host] = HostOutput(output="", error=f"no answer within {limit_s:g} s", read_at=time.time())
                continue
            error = _last_words(said, process.returncode) if process.returncode else ""
            outputs[host] = HostOutput(output=printed.decode(errors="replace"), error=error, read_at=time.time())
    finally:
        end_process_group(*started.values())
    return outputs


def _last_words(said: bytes, status: int) -> str:
    """The last line of a command that failed; what srun adds about its end counts only where nothing else was said."""
    lines = said.decode(errors="replace").strip().splitlines()
    own = [line for line in lines if not _SRUNS_END.match(line)]
    return [f"exit status {status}", *lines[-1:], *own[-1:]][-1]


def end_process_group(*processes: subprocess.Popen[bytes], grace_s: float = _TERMINATE_GRACE_S) -> None:
    """Terminate the groups that start_command made, all at once, and kill what is left of each after ``grace_s``.

    When it returns none of their processes runs any more, also those that take a while to die, having much memory.
    """
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=grace_s)
        _signal_group(process, signal.SIGKILL)
        process.wait()
        _await_end_of_group(process.pid)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not yet written to its input
                    stream.close()


@dataclass(frozen=True, kw_only=True, slots=True)
class Deadline:
    """A point in time by the monotonic clock, and the limit it came from."""

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
        """``exit status 1`` or ``signal SIGKILL``; waits for the end."""
        code = self.process.wait()
        return f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def tail(self) -> str:
        """The last lines of its log."""
        return _last_lines(read_tail(self.log))


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
    """Run ``command`` while the block does; its process group is ended when the block is left, however.

    ``stdout`` None sends it to the log. ``death_signal`` is what the program gets when the thread that started it ends.
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
    """The descriptors (of processes that ended, of pipes with input) that are ready; none when time ran out."""
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


def _await_end_of_group(group: int) -> None:
    """Return when all of a group that was killed have ended, at the latest after a time: the kernel may hold some."""
    end_s = time.monotonic() + _DYING_S
    with contextlib.suppress(ProcessLookupError):  # none is left, nor waits to be collected
        while time.monotonic() < end_s:
            os.killpg(group, 0)
            if all(one.group != group or one.is_zombie for one in all_processes()):
                break
            time.sleep(_LOOK_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEntry:
    """A process of the machine, by its numbers."""

    number: int
    parent: int
    group: int
    is_zombie: bool
    """It has ended, and waits to be collected."""


def stat_fields(process: int | str) -> list[str]:
    """What /proc says of a process: its state, parent, group ... Raises OSError for one that has ended."""
    text = Path("/proc", str(process), "stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()  # "pid (command) state ...": the command may hold spaces and brackets


def all_processes() -> Iterator[ProcessEntry]:
    """Every process of the machine."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                fields = stat_fields(folder.name)
                yield ProcessEntry(
                    number=int(folder.name), parent=int(fields[1]), group=int(fields[2]), is_zombie=fields[0] == "Z"
                )


def _result(command: tuple[str, ...], process: subprocess.Popen[bytes], output: tuple[bytes, bytes]) -> CommandResult:
    stdout, stderr = (printed.decode(errors="replace") for printed in output)
    return CommandResult(command=command, returncode=process.returncode, stdout=stdout, stderr=stderr)


def _not_found(program: str) -> CommandError:
    return CommandError(f"{program}: the program was not found", hint=f"install {program} or put it on the PATH")


def _last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
