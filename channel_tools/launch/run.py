# SPDX-License-Identifier: BSD-3-Clause
"""Runs a plan: the further programs, then the ranks on every host, until all have ended or one has failed.

Each command runs under ``supervisor.py``, whose standard input is kept open here: when this process ends, for whatever
reason, the supervisors end everything that their commands started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.launch.hosts import check_reachable
from channel_tools.launch.plan import SWITCH_PORT
from channel_tools.system.processes import Deadline, end_process_group, ssh_command, start_command
from channel_tools.system.work_folder import temporary_folder
from channel_tools.validate.distributed.services import running_services
from channel_tools.validate.model import MethodContext
from channel_tools.validate.ranks import DIED_UNDER_TORCHRUN
from channel_tools.validate.switchml.switch import running_switch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.launch.launchers import HostCommand
    from channel_tools.launch.plan import LaunchPlan
    from channel_tools.system.progress import Progress
    from channel_tools.validate.ranks import Companion

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SUPERVISOR_GRACE_S = 10.0
_READY_S = 60.0
_CHUNK_BYTES = 65_536
_LINE_BYTES = 4_096


def run_launch(plan: LaunchPlan, *, progress: Progress) -> int:
    """Run the plan to its end; returns the script's exit code, 128 plus the signal's number for a killed rank.

    Raises NetworkError for a host that cannot be reached, and ValidationError for a switch or service that does not
    start or ends before the ranks.
    """
    check_reachable(plan.hosts if plan.launcher != "srun" else (), env=plan.variables)
    with temporary_folder() as folder, _companions(plan, folder, progress) as (companions, more):
        variables = {**plan.variables, **more}
        exported = {**plan.exported, **more}
        with contextlib.ExitStack() as stack:
            running = [stack.enter_context(_running(command, plan, variables, exported)) for command in plan.commands]
            return _wait(running, companions)


@contextlib.contextmanager
def _companions(
    plan: LaunchPlan, folder: Path, progress: Progress
) -> Iterator[tuple[Sequence[Companion], Mapping[str, str]]]:
    """Run the programs that the ranks need while the block runs; yields their variables for the ranks."""
    request, deadline = plan.request, Deadline.after(_READY_S)
    context = MethodContext(
        stack=request.stack,
        prefix=request.prefix,
        variables=plan.variables,
        ranks=request.ranks,
        options=request.options,
        folder=folder,
        deadline=deadline,
        progress=progress,
    )
    with contextlib.ExitStack() as stack:
        services = stack.enter_context(running_services(plan.services, context))
        companions: list[Companion] = [*services]
        if plan.switch_address:
            companions.append(
                stack.enter_context(
                    running_switch(
                        prefix=request.prefix,
                        variables=plan.variables,
                        address=plan.switch_address,
                        controller_port=SWITCH_PORT,
                        folder=folder,
                        deadline=deadline,
                    )
                )
            )
        yield companions, {name: value for one in services for name, value in one.rank_variables.items()}


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
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        *lines, self._line = (self._line + chunk).split(b"\n")
        self._line = self._line[-_LINE_BYTES:]
        for line in lines:
            found = DIED_UNDER_TORCHRUN.search(line.decode(errors="replace"))
            if found and self.rank_code is None:
                self.rank_code = int(found[1])
        return bool(chunk)

    def exit_code(self) -> int:
        """The script's exit code, if known, else the command's."""
        while self.pass_on():
            pass
        code = self.process.wait()
        if code and self.rank_code is not None:
            code = self.rank_code
        return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _running(
    command: HostCommand, plan: LaunchPlan, variables: Mapping[str, str], exported: Mapping[str, str]
) -> Iterator[_RunningCommand]:
    document = json.dumps(
        {
            "folder": str(plan.request.folder),
            "variables": dict(variables if command.is_local else exported),
            "words": command.words,
        }
    )
    text = _SUPERVISOR.read_text(encoding="utf-8")
    words: tuple[str, ...] = (sys.executable, "-I", "-S", "-c", text, document)
    if not command.is_local and command.host is not None:
        python = str(plan.request.prefix.absolute() / "bin" / "python")
        words = (*ssh_command(command.host.name), shlex.join((python, "-I", "-S", "-c", text, document)))
    errors = subprocess.PIPE if plan.launcher == "torchrun" else None
    process = start_command(words, env=variables, stdin=subprocess.PIPE, stderr=errors)
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


def _wait(running: Sequence[_RunningCommand], companions: Sequence[Companion]) -> int:
    """Wait until all commands have ended or one has failed; returns the exit code.

    Raises the error of a companion program that ends early.
    """
    poll = select.poll()
    for command in running:
        poll.register(command.descriptor, select.POLLIN)
        if command.errors is not None:
            poll.register(command.errors, select.POLLIN)
    for companion in companions:
        poll.register(companion.program.descriptor, select.POLLIN)
    left = {command.descriptor: command for command in running}
    errors = {command.errors: command for command in running if command.errors is not None}
    while left:
        for descriptor, _ in poll.poll():
            if descriptor in errors and not errors[descriptor].pass_on():
                poll.unregister(descriptor)
                del errors[descriptor]
            if (ended := left.pop(descriptor, None)) is not None:
                poll.unregister(descriptor)
                if code := ended.exit_code():
                    return code
        if failed := next((one for one in companions if left and one.program.has_ended()), None):
            raise failed.failure()
    return 0
