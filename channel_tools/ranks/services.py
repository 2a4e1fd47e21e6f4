# SPDX-License-Identifier: BSD-3-Clause
"""Starts services of the ranks' environment in order, waits until they are ready, ends them, and counts their logs.

A service is a program of the environment that has to run before and during the ranks. Its command may use ``{prefix}``,
``{ranks}`` and ``{port}``; its variables for the ranks may also use the named groups of ``ready_line``, since a program
that chooses its own port prints it when it is ready.

A service's output is written directly to its log, which is read until the service is ready: a pipe that is no longer
read would block a service that continues to print.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat, StringConstraints, model_validator
from pydantic.dataclasses import dataclass as model_dataclass

from channel_tools.system.errors import ValidationError
from channel_tools.system.processes import Program, end_process_group, running_program, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.system.processes import Deadline
    from channel_tools.system.progress import Progress

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
RANK_GROUP = "rank"
_NAMES = frozenset({"prefix", "ranks", "port"})
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_Word = Annotated[str, StringConstraints(min_length=1)]
_Port = Annotated[str, StringConstraints(pattern=r"^(|[0-9]{1,5}|\{port\})$")]
_HOST = "127.0.0.1"
_LOOK_S = 0.05
# below those that systems assign to clients
_PORTS = range(20_000, 32_000)
_ATTEMPTS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """An installed environment, its activation's variables, and where and how long its programs run."""

    stack: str
    prefix: Path
    variables: Mapping[str, str]
    ranks: int
    folder: Path
    """The folder of this run: logs, plan and results."""
    deadline: Deadline
    progress: Progress


@model_dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class ServiceOptions:
    """A service: its command, how to recognise that it is ready, the ranks' variables, how its log counts data.

    Each field is described in docs/how-to/validate.md.
    """

    command: Annotated[tuple[_Word, ...], Field(min_length=1)]
    ready_line: re.Pattern[str] | None = None
    ready_port: _Port = ""
    ready_timeout_s: PositiveFloat = 60.0
    rank_environment: dict[VariableName, str] = field(default_factory=dict)
    carried_line: re.Pattern[str] | None = None
    carried_bytes: NonNegativeInt = 0

    @model_validator(mode="after")
    def _is_usable(self) -> ServiceOptions:
        if (self.ready_line is None) == (not self.ready_port):
            raise ValueError("needs exactly one of ready_line and ready_port")
        if self.carried_line is not None and RANK_GROUP not in self.carried_line.groupindex:
            raise ValueError(f"carried_line needs a group (?P<{RANK_GROUP}>...)")
        if self.carried_bytes and self.carried_line is None:
            raise ValueError("carried_bytes needs carried_line: it is the number of bytes for one such line")
        _refuse_unknown([*self.command, self.ready_port], _NAMES)
        groups = {} if self.ready_line is None else self.ready_line.groupindex
        _refuse_unknown(self.rank_environment.values(), _NAMES | set(groups))
        return self

    @property
    def name(self) -> str:
        """Its name in messages: that of the program."""
        return PurePath(self.command[0]).name


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceCount:
    """The number of lines in a service's log for each rank, and how many bytes of a tensor a line represents at most.

    ``bytes_per_line`` 0: a line represents one allreduce.
    """

    name: str
    lines: Mapping[str, int]
    bytes_per_line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningService:
    """A service that is ready."""

    options: ServiceOptions
    program: Program
    rank_variables: Mapping[str, str]

    def failure(self) -> ValidationError:
        """The error for a service that ended by itself."""
        return ValidationError(
            f"{self.options.name} ended while the ranks ran: {self.program.end_in_words()}\n{self.program.tail()}",
            hint=f"its log is {self.program.log}",
        )

    def stop(self) -> ServiceCount | None:
        """End the service normally and count what it carried by its log; None if the log does not say it."""
        end_process_group(self.program.process)
        pattern = self.options.carried_line
        if pattern is None:
            return None
        with self.program.log.open(encoding="utf-8", errors="replace") as log:
            lines = Counter(match[RANK_GROUP] for line in log if (match := pattern.search(line)))
        return ServiceCount(name=self.options.name, lines=lines, bytes_per_line=self.options.carried_bytes)


@contextlib.contextmanager
def running_services(services: Sequence[ServiceOptions], context: RunContext) -> Iterator[tuple[RunningService, ...]]:
    """Run all ``services`` while the block runs, each started when the one before is ready.

    Raises ValidationError, with its output, if one does not exist, ends, or is not ready in time.
    """
    with contextlib.ExitStack() as stack:
        yield tuple(
            stack.enter_context(_running_service(options, context, number))
            for number, options in enumerate(services, start=1)
        )


def find_program(name: str, context: RunContext, *, hint: str) -> Path:
    """The program of the activated environment. Raises ValidationError with ``hint`` if it has none."""
    path = shutil.which(name, path=context.variables.get("PATH", ""))
    if path is None:
        message = f"stack {context.stack}: the activated environment {context.prefix} has no {name}"
        raise ValidationError(message, hint=hint)
    return Path(path)


@contextlib.contextmanager
def _running_service(options: ServiceOptions, context: RunContext, number: int) -> Iterator[RunningService]:
    program_file = find_program(options.command[0], context, hint="add its package to the stack's install list")
    values = {"prefix": str(context.prefix), "ranks": str(context.ranks), "port": str(choose_port())}
    command: list[str | Path] = [program_file, *(filled(word, values) for word in options.command[1:])]
    log = context.folder / f"service-{number}-{options.name}.log"
    with running_program(options.name, command, env=context.variables, cwd=context.folder, log=log) as program:
        deadline = context.deadline.capped(options.ready_timeout_s)
        hint = f"its log is {program.log}"
        while (announced := _readiness(options, program.log, values)) is None:
            if wait_for_any([program.descriptor], deadline.capped(_LOOK_S)):
                message = f"{options.name} ended before it was ready: {program.end_in_words()}\n{program.tail()}"
                raise ValidationError(message, hint=hint)
            if not deadline.left_s():
                message = f"{options.name}: not ready within {deadline.limit_s:g} s\n{program.tail()}"
                raise ValidationError(message, hint=hint)
        context.progress.note(f"{options.name} is ready")
        rank_variables = {
            name: filled(text, {**values, **announced}) for name, text in options.rank_environment.items()
        }
        yield RunningService(options=options, program=program, rank_variables=rank_variables)


def _readiness(options: ServiceOptions, log: Path, values: Mapping[str, str]) -> Mapping[str, str] | None:
    if options.ready_line is None:
        return {} if _listens(int(filled(options.ready_port, values))) else None
    complete_lines = log.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0]
    match = next((match for line in complete_lines.splitlines() if (match := options.ready_line.search(line))), None)
    return None if match is None else match.groupdict(default="")


def choose_port() -> int:
    """A random free port of 127.0.0.1, so that simultaneous runs do not collide.

    Raises ValidationError if none was found.
    """
    source = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = source.choice(_PORTS)
        if not _listens(port):
            return port
    message = f"no free TCP port of {_HOST} was found in {_ATTEMPTS} attempts from {_PORTS[0]} to {_PORTS[-1]}"
    raise ValidationError(message, hint="end what listens on them, then run the command again")


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex((_HOST, port)) == 0


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def _refuse_unknown(texts: Iterable[str], known: Iterable[str]) -> None:
    unknown = {name for text in texts for name in _PLACEHOLDER.findall(text)} - set(known)
    if unknown:
        raise ValueError(f"{{{min(unknown)}}} is not a known placeholder; known are {', '.join(sorted(known))}")
