# SPDX-License-Identifier: BSD-3-Clause
"""Runs a plan: the services, then the ranks on every host, until all have ended or one has failed.

Each command runs under ``supervisor.py``, whose standard input is kept open here: when this process ends, for whatever
reason, the supervisors end everything that their commands started. So a command gets this process's standard input, for
rank 0, under another descriptor; one on another host has none, since ssh carries only one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

from channel_tools.ranks.hosts import check_reachable
from channel_tools.ranks.launchers import DIED_UNDER_TORCHRUN
from channel_tools.ranks.services import RunContext, running_services
from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Deadline, end_process_group, pass_on_errors, start_command, wait_for_any
from channel_tools.system.remote import ssh_command
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.ranks.launchers import HostCommand
    from channel_tools.ranks.plan import Account, RankPlan
    from channel_tools.ranks.watch import Watch
    from channel_tools.system.processes import Program
    from channel_tools.system.progress import Progress

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SUPERVISOR_GRACE_S = 40.0
"""Longer than it gives to its processes before and after SIGKILL."""
_READY_S = 60.0
_NAME_FIRST = "for that, start it on the first host, or name this one first in the hosts file"
_LOOK_S = 0.2
_STDIN = 0
_CHUNK_BYTES = 65_536
_LINE_BYTES = 4_096


class Companion(Protocol):
    """A program that has to run as long as the ranks do."""

    @property
    def program(self) -> Program:
        """The running program."""

    def failure(self) -> ValidationError:
        """The error if it ended by itself."""


def run_with_services(plan: RankPlan, *, progress: Progress, watch: Watch | None = None) -> int:
    """Run the plan to its end; returns the script's exit code, 128 plus the signal's number for a killed rank.

    Raises NetworkError for a host that cannot be reached, and ValidationError for a service that does not start or ends
    before the ranks, and for a job that its ``watch`` ends.
    """
    check_plan_reachable(plan)
    with temporary_folder() as folder:
        context = RunContext(
            stack=plan.stack,
            prefix=plan.placement.prefix,
            variables=plan.variables,
            ranks=plan.placement.ranks,
            folder=folder,
            deadline=Deadline.after(_READY_S),
            progress=progress,
        )
        with running_services(plan.services, context) as services:
            more = {name: value for service in services for name, value in service.rank_variables.items()}
            report = _ReportFile.of(plan, folder)
            if report is not None:
                more = {**report.variables, **more}
            relays = plan.launcher != "torchrun"
            with own_input(relays=relays) as stdin, running_ranks(plan, more=more, stdin=stdin) as ranks:
                if stdin is not None and not plan.commands[0].is_local and not _is_null(stdin):
                    progress.note(f"rank 0 reads no standard input: ssh starts it; {_NAME_FIRST}")
                code = ranks.wait(services) if watch is None else _wait_watched(ranks, services, watch)
            if code and plan.launcher == "mpiexec":
                progress.note(
                    f"mpiexec ended with {code}, the exit code of the rank that ended first; it ended the others"
                )
            if plan.account is not None and report is not None:
                progress.note(account_in_words(plan.account, report.read(), code))
    return code


def _wait_watched(ranks: RunningRanks, companions: Sequence[Companion], watch: Watch) -> int:
    with contextlib.closing(watch):
        while (code := ranks.wait(companions, Deadline.after(watch.look_every_s), wakes=watch.deaths)) is None:
            if watch.look():
                message = f"no rank has moved for {watch.options.seconds:g} s, so --watch-end ends the job"
                raise ValidationError(message, hint="the report above says where each stands")
        watch.end(code)
    return code


def account_in_words(account: Account, report: Mapping[str, Any] | None, code: int) -> str:
    """What carried the job; a rank 0 that was ended before it could say so has left no report."""
    if code and report is None:
        return "what carried this job is not known: rank 0 ended before it could report it"
    return account.summary(report)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ReportFile:
    """Where rank 0 says what carried its data: in the user's file if one is named, else in a temporary one."""

    variables: Mapping[str, str]
    path: Path
    before: int
    """When the file was changed before the run; 0 if there was none."""

    @classmethod
    def of(cls, plan: RankPlan, folder: Path) -> _ReportFile | None:
        """None for a stack that leaves no report, for a single rank, and if rank 0 runs on another host."""
        if plan.account is None or plan.placement.ranks == 1 or not plan.placement.hosts[0].is_local:
            return None
        named = plan.variables.get(plan.account.variable)
        template = named or str(folder / "rank{rank}.json")
        path = plan.folder / template.replace("{rank}", "0")
        return cls(variables={} if named else {plan.account.variable: template}, path=path, before=_changed_ns(path))

    def read(self) -> Mapping[str, Any] | None:
        """The report of this run; None if rank 0 has left none."""
        if _changed_ns(self.path) == self.before:
            return None
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@contextlib.contextmanager
def own_input(*, relays: bool) -> Iterator[int | None]:
    """A descriptor of this process's standard input, for a program that may read it; None if there is none.

    The program is in another session, whose reads of a terminal the kernel does not stop. So in the background of a
    shell it gets none, and one that ``relays``, which reads whatever is typed, gets what this process reads.
    """
    with contextlib.ExitStack() as stack:
        try:
            descriptor = os.dup(_STDIN)
        except OSError:
            yield None
            return
        stack.callback(os.close, descriptor)
        if _is_in_background(descriptor):
            yield None
        elif relays and os.isatty(descriptor):
            yield stack.enter_context(_read_here(descriptor))
        else:
            yield descriptor


def _is_in_background(stdin: int) -> bool:
    try:
        return os.tcgetpgrp(stdin) != os.getpgrp()
    except OSError:  # no terminal, or another session's
        return False


def _is_null(stdin: int) -> bool:
    return os.path.samestat(os.fstat(stdin), Path(os.devnull).stat())


@contextlib.contextmanager
def _read_here(terminal: int) -> Iterator[int]:
    """A pipe that gets what is typed while this process is in the foreground: while it is stopped, the shell reads."""
    reader, writer = os.pipe()
    ended, end = os.pipe()

    def relay() -> None:
        with (
            os.fdopen(writer, "wb", buffering=0) as pipe,
            contextlib.suppress(OSError),
        ):  # nobody reads the pipe any more
            while ended not in wait_for_any([terminal, ended]):
                if _is_in_background(terminal):
                    wait_for_any([ended], Deadline.after(_LOOK_S))
                elif data := os.read(terminal, _CHUNK_BYTES):
                    pipe.write(data)
                else:
                    return

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        os.close(reader)  # the programs have ended, so that a relay which waits for room in the pipe ends, too
        os.close(end)
        thread.join()
        os.close(ended)


def check_plan_reachable(plan: RankPlan) -> None:
    """Raise NetworkError naming each host on which the plan's ranks cannot be started by ssh."""
    check_reachable(plan.placement.hosts if plan.launcher != "srun" else (), env=plan.variables)


class _RunningCommand:
    """A command under its supervisor; torchrun's stderr is read here, since only it has a rank's exit code."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.descriptor = descriptor
        self.errors = None if process.stderr is None else process.stderr.fileno()
        self.rank_code: int | None = None
        self._line = b""

    def pass_on(self) -> bool:
        """Pass on new lines of its stderr; False if there will be no more."""
        if self.errors is None:
            return False
        chunk = os.read(self.errors, _CHUNK_BYTES)
        pass_on_errors(chunk)
        *lines, self._line = (self._line + chunk).split(b"\n")
        self._line = self._line[-_LINE_BYTES:]
        for line in lines:
            match = DIED_UNDER_TORCHRUN.search(line.decode(errors="replace"))
            if match and self.rank_code is None:
                self.rank_code = int(match[1])
        return bool(chunk)

    def exit_code(self) -> int:
        """The script's exit code, if known, else the command's."""
        code = self.process.wait()
        # what is in the pipe, but not its end: a process that even SIGKILL did not end may hold it open
        while self.errors is not None and wait_for_any([self.errors], Deadline.after(0)) and self.pass_on():
            pass
        if code and self.rank_code is not None:
            code = self.rank_code
        return code if code >= 0 else 128 - code


class RunningRanks:
    """The commands of a plan while they run; what they print goes to ``log``, if there is one."""

    def __init__(self, commands: Sequence[_RunningCommand], log: Path | None) -> None:
        self._commands, self.log = commands, log

    @overload
    def wait(self, companions: Sequence[Companion] = ...) -> int: ...

    @overload
    def wait(
        self, companions: Sequence[Companion], deadline: Deadline, *, wakes: Sequence[int] = ...
    ) -> int | None: ...

    def wait(
        self, companions: Sequence[Companion] = (), deadline: Deadline | None = None, *, wakes: Sequence[int] = ()
    ) -> int | None:
        """Wait until all commands have ended or one has failed; returns the exit code, None if the time is over.

        Or, before that, if one of the descriptors ``wakes`` is readable. Raises the error of a companion program that
        ends early.
        """
        poll = select.poll()
        for descriptor in wakes:
            poll.register(descriptor, select.POLLIN)
        for companion in companions:
            poll.register(companion.program.descriptor, select.POLLIN)
        errors = {command.errors: command for command in self._commands if command.errors is not None}
        running = {command.descriptor: command for command in self._commands}
        for descriptor in (*errors, *running):
            poll.register(descriptor, select.POLLIN)
        while running:
            ready = poll.poll(None if deadline is None else deadline.left_s() * 1000)
            if not ready or all(descriptor in wakes for descriptor, _ in ready):
                return None
            for descriptor, _ in ready:
                if descriptor in errors and not errors[descriptor].pass_on():
                    poll.unregister(descriptor)
                    del errors[descriptor]
                if (ended := running.pop(descriptor, None)) is not None:
                    poll.unregister(descriptor)
                    if code := ended.exit_code():
                        return code
            if failed := next(
                (companion for companion in companions if running and companion.program.has_ended()), None
            ):
                raise failed.failure()
        return 0


@contextlib.contextmanager
def running_ranks(
    plan: RankPlan, *, more: Mapping[str, str] | None = None, log: Path | None = None, stdin: int | None = None
) -> Iterator[RunningRanks]:
    """Run the plan's commands while the block runs; ``more`` are further variables of the ranks.

    The command that starts rank 0, the first, reads the descriptor ``stdin`` if it runs here. With a ``log``, this new
    file gets the plan's lines and what the commands print, else this process's streams do.
    """
    extra = dict(more or {})
    with contextlib.ExitStack() as stack:
        stream = None if log is None else stack.enter_context(log.open("ab"))
        output = None if stream is None else stream.fileno()
        commands = [
            stack.enter_context(_running(command, plan, extra, output, None if number else stdin))
            for number, command in enumerate(plan.commands)
        ]
        yield RunningRanks(commands, log)


@contextlib.contextmanager
def _running(
    command: HostCommand, plan: RankPlan, more: Mapping[str, str], output: int | None, stdin: int | None
) -> Iterator[_RunningCommand]:
    if not command.is_local:
        stdin = None
    variables = {**plan.variables, **more}
    environment = variables if command.is_local else {**plan.exported, **more}
    request = {"folder": str(plan.folder), "variables": dict(environment), "words": command.words, "stdin": stdin}
    document = json.dumps(request)
    text = _SUPERVISOR.read_text(encoding="utf-8")
    words: tuple[str, ...] = (sys.executable, "-I", "-S", "-c", text, document)
    if not command.is_local and command.host is not None:
        python = str(plan.placement.prefix / "bin" / "python")
        words = (*ssh_command(command.host.name), shlex.join((python, "-I", "-S", "-c", text, document)))
    errors = subprocess.PIPE if plan.launcher == "torchrun" and output is None else output
    passed = () if stdin is None else (stdin,)
    process = start_command(words, env=variables, stdin=subprocess.PIPE, stdout=output, stderr=errors, pass_fds=passed)
    descriptor = os.pidfd_open(process.pid)
    try:
        yield _RunningCommand(process, descriptor)
    finally:
        os.close(descriptor)
        if process.stdin is not None:
            process.stdin.close()  # the supervisor waits for this
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_SUPERVISOR_GRACE_S)
        end_process_group(process)
