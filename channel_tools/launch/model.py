# SPDX-License-Identifier: BSD-3-Clause
"""The values of a launch: what is asked for, and the commands and variables that it comes to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.validate.distributed.options import ServiceOptions

LauncherName = Literal["torchrun", "mpiexec", "srun"]
LOCALHOST = "127.0.0.1"
SWITCH_PORT = 50099
"""Of a software switch's controller that is started here; the one that libswitchml takes where none is named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A machine and how many ranks it runs; ``is_local``: it is this one.

    ``given_address`` is what a scheduler says of where to reach it, "" where nothing says so: by its name.
    """

    name: str
    ranks: int
    is_local: bool
    given_address: str = ""

    @property
    def address(self) -> str:
        """Where other hosts reach it: a name or a number."""
        return self.given_address or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """What to start and where.

    ``method`` and ``options`` are the stack's ``validate`` block. ``hosts`` empty: what the scheduler's job has, else
    this machine. ``launcher`` None: by stack and place. ``words`` are the script and its arguments; ``folder`` is where
    it runs, on each host.
    """

    stack: str
    method: str
    options: Mapping[str, object]
    ranks: int
    hosts: tuple[Host, ...]
    launcher: LauncherName | None
    prefix: Path
    words: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCommand:
    """A command that starts ranks; ``host`` None: it reaches the hosts by itself."""

    host: Host | None
    words: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return self.host is None or self.host.is_local


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchPlan:
    """What will run. ``exported`` are the variables of ``variables`` that this machine's shell does not have so."""

    request: LaunchRequest
    launcher: LauncherName
    hosts: tuple[Host, ...]
    commands: tuple[HostCommand, ...]
    variables: Mapping[str, str]
    exported: Mapping[str, str]
    switch_address: str = ""
    """Where to run a software switch beside the ranks; empty: nowhere."""
    services: tuple[ServiceOptions, ...] = ()

    def lines(self) -> Iterator[str]:
        """The plan for people, as lines of a shell: the variables, the programs beside the ranks, the commands."""
        for name, value in sorted(self.exported.items()):
            yield f"export {name}={shlex.quote(value)}"
        if self.switch_address:
            yield f"switchml-switch --address {self.switch_address} --controller-port {SWITCH_PORT} &"
        for service in self.services:
            yield f"{shlex.join(service.command)} &"
        for command in self.commands:
            where = "" if command.is_local or command.host is None else f"ssh {command.host.name} "
            yield where + shlex.join(command.words)
