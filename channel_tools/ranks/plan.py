# SPDX-License-Identifier: BSD-3-Clause
"""Plans the start of ranks: the commands and the variables. Examines the hosts and the scheduler, but starts no rank.

A user's variables override those of the stack; variables that apply only to the ranks of one machine (loopback) are
left out on several.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from channel_tools.environments import activated_environment, installed_builds
from channel_tools.ranks.hosts import Host, hosts_of_the_job
from channel_tools.ranks.launchers import Start, meeting_point, pick_launcher, rank_commands
from channel_tools.ranks.services import choose_port
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.ranks.launchers import HostCommand
    from channel_tools.ranks.services import ServiceOptions
    from channel_tools.requests.names import LauncherName

_OF_FABRICS = re.compile(
    r"(SWITCHML|TORCH|NCCL|FI|CCL|GLOO|OMP|KMP|MPICH|MPIR|I_MPI|UCX|CUDA|ROCR|HIP|ACCL)_.*|PYTHON(PATH|DONTWRITEBYTECODE)"
)
"""Variables that a user may have set for the ranks; a shell's other variables are those of each host."""
_SLURM_PORTS, _SLURM_FIRST_PORT = 12_000, 20_000
"""Below 32768, from where on Linux gives ports to connections."""
_LOOPBACK = "lo"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where ranks run: an environment and the hosts. ``are_named`` if a user, not a scheduler, named the hosts.

    ``environ`` are the variables of the user or the scheduler, ``variables`` those and the activated environment's.
    ``installed`` are the environment's packages by name, each as ``VERSION BUILD``.
    """

    prefix: Path
    ranks: int
    hosts: tuple[Host, ...]
    are_named: bool
    environ: Mapping[str, str]
    variables: Mapping[str, str]
    installed: Mapping[str, str]

    @property
    def is_here(self) -> bool:
        """Whether all ranks run on this machine."""
        return len(self.hosts) == 1 and self.hosts[0].is_local

    @property
    def names_hosts(self) -> bool:
        """Whether a launcher has to be given the names of the hosts."""
        return self.are_named and not all(host.is_local for host in self.hosts)

    def start(self, words: Sequence[str], *, arguments: Sequence[str] = (), port: int = 0) -> Start:
        """What the commands are made from; ``port`` is that at which ranks of several hosts meet."""
        return Start(
            prefix=self.prefix,
            variables=self.variables,
            installed=self.installed,
            hosts=self.hosts,
            ranks=self.ranks,
            master=meeting_point(self.hosts),
            port=port,
            arguments=tuple(arguments),
            words=tuple(words),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """How a stack's plugin says what it carried for a rank: in a file of JSON that ``variable`` names.

    Its value may have ``{rank}``. ``summary`` makes one line for people of rank 0's report, None if it left none.
    """

    variable: str
    summary: Callable[[Mapping[str, Any] | None], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class StartSettings:
    """How the ranks of a stack are started; ``arguments`` are the launcher's, ``services`` run beside the ranks."""

    launcher: LauncherName = "torchrun"
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    services: tuple[ServiceOptions, ...] = ()
    account: Account | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """What will run, in ``folder`` on each host.

    ``variables`` are those of ranks on this machine, ``exported`` the part of them that other hosts are given.
    """

    stack: str
    launcher: str
    placement: Placement
    commands: tuple[HostCommand, ...]
    variables: Mapping[str, str]
    exported: Mapping[str, str]
    folder: Path
    services: tuple[ServiceOptions, ...] = ()
    account: Account | None = None

    def lines(self) -> Iterator[str]:
        """The plan as shell lines for people: the variables, the services, the commands."""
        for name, value in sorted(self.exported.items()):
            yield f"export {name}={shlex.quote(value)}"
        for service in self.services:
            yield f"{shlex.join(service.command)} &"
        for command in self.commands:
            where = "" if command.is_local or command.host is None else f"ssh {command.host.name} "
            yield where + shlex.join(command.words)


def find_placement(
    prefix: Path, ranks: int, *, hosts: Sequence[Host] = (), are_named: bool = True, environ: Mapping[str, str]
) -> Placement:
    """The placement of ``ranks`` on ``hosts``: if empty, those of the scheduler's job, else this machine.

    Raises the errors of activated_environment and hosts_of_the_job.
    """
    activated = activated_environment(prefix, environ=environ, inherit=True)
    return Placement(
        prefix=absolute_path(prefix),
        ranks=ranks,
        hosts=tuple(hosts) or hosts_of_the_job(ranks, environ=activated) or (this_host(ranks),),
        are_named=bool(hosts) and are_named,
        environ=environ,
        variables=activated,
        installed=installed_builds(prefix),
    )


def placement_here(prefix: Path, ranks: int, *, variables: Mapping[str, str]) -> Placement:
    """The placement of ranks on this machine; ``variables``, of an activated environment, are all they are given."""
    return Placement(
        prefix=absolute_path(prefix),
        ranks=ranks,
        hosts=(this_host(ranks),),
        are_named=False,
        environ={},
        variables=variables,
        installed=installed_builds(prefix),
    )


def this_host(ranks: int) -> Host:
    """This machine, with all ranks."""
    return Host(name="localhost", ranks=ranks, is_local=True)


def plan_ranks(
    placement: Placement,
    settings: StartSettings,
    *,
    stack: str,
    words: Sequence[str],
    folder: Path,
    launcher: LauncherName | None = None,
    network: str | None = None,
) -> RankPlan:
    """The commands and variables for the script ``words``; ``launcher`` None means a choice by stack and placement.

    ``network`` is what srun asks of the network. Raises UsageError for contradictory parts, CommandError for a missing
    launcher.
    """
    chosen = pick_launcher(launcher, settings.launcher, placement.environ, hosts=placement.are_named)
    arguments = settings.arguments if chosen == settings.launcher else ()
    if network is not None:
        if chosen != "srun":
            message = f"--network: {chosen} starts the ranks, and only Slurm's srun can ask for a network"
            raise UsageError(message, hint="run it inside a Slurm job, or give --emit slurm")
        arguments = (*arguments, f"--network={network}")
    # under Slurm, the port at which ranks meet is made of the job's number: it is the same on all nodes
    job = placement.environ.get("SLURM_JOB_ID", "")
    start = placement.start(
        words,
        arguments=arguments,
        port=_SLURM_FIRST_PORT + int(job) % _SLURM_PORTS if job.isdecimal() else choose_port(),
    )
    variables = {**_defaults(start, settings.variables), **placement.variables}
    return RankPlan(
        stack=stack,
        launcher=chosen,
        placement=placement,
        commands=rank_commands(chosen, start, is_mpi=settings.launcher == "mpiexec", name_hosts=placement.names_hosts),
        variables=variables,
        exported={
            name: value
            for name, value in variables.items()
            if placement.environ.get(name) != value or _OF_FABRICS.fullmatch(name)
        },
        folder=folder,
        services=settings.services,
        account=settings.account,
    )


def plan_here(
    placement: Placement, settings: StartSettings, *, stack: str, words: Sequence[str], folder: Path
) -> RankPlan:
    """As plan_ranks, for placement_here: the stack's launcher, and no variables but the placement's own."""
    start = placement.start(words, arguments=settings.arguments)
    commands = rank_commands(settings.launcher, start, is_mpi=settings.launcher == "mpiexec", name_hosts=False)
    return local_plan(placement, commands, stack=stack, launcher=settings.launcher, folder=folder)


def local_plan(
    placement: Placement, commands: tuple[HostCommand, ...], *, stack: str, launcher: str, folder: Path
) -> RankPlan:
    """A plan of given commands on this machine, with the variables of the placement."""
    return RankPlan(
        stack=stack,
        launcher=launcher,
        placement=placement,
        commands=commands,
        variables=placement.variables,
        exported={},
        folder=folder,
    )


def rank_variables() -> dict[str, str]:
    """The variables of ranks on one machine, for all stacks."""
    return {
        # otherwise gloo looks up the host's own name, which a laptop or container may not resolve
        "GLOO_SOCKET_IFNAME": _LOOPBACK,
        # ranks share the cores; more threads than cores only slow each other down
        "OMP_NUM_THREADS": "1",
    }


def without_loopback(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those that apply only to ranks of one host."""
    return {name: value for name, value in variables.items() if value != _LOOPBACK}


def _defaults(start: Start, own: Mapping[str, str]) -> dict[str, str]:
    """The ranks' variables that the user has not set."""
    cores = len(os.sched_getaffinity(0))
    most = max(host.ranks for host in start.hosts)
    values = {
        **rank_variables(),
        **own,
        "OMP_NUM_THREADS": str(max(1, cores // most)),
        "MASTER_ADDR": start.master,
        "MASTER_PORT": str(start.port),
    }
    return values if len(start.hosts) == 1 else without_loopback(values)
