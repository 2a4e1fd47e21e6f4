# SPDX-License-Identifier: BSD-3-Clause
"""Turns a request into commands and variables. Examines the environment and the scheduler, but starts no rank.

A user's variables override those of the stack's validation; variables that apply only to the ranks of one machine
(loopback) are left out on several.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.environments import activated_environment, installed_builds
from channel_tools.environments.oneccl_affinity import plan_oneccl_affinity
from channel_tools.launch.hosts import Host, address_towards, hosts_of_the_job
from channel_tools.launch.launchers import (
    Start,
    meeting_point,
    mpiexec_commands,
    pick_launcher,
    srun_commands,
    torchrun_commands,
)
from channel_tools.system.errors import UsageError
from channel_tools.system.kernel import usable_cores
from channel_tools.validate.distributed.options import filled, read_distributed_options
from channel_tools.validate.distributed.services import choose_port
from channel_tools.validate.nccl.method import nccl_variables
from channel_tools.validate.ranks import rank_variables, without_loopback
from channel_tools.validate.switchml.switch import choose_loopback_network

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.launch.launchers import HostCommand, LauncherName
    from channel_tools.validate.distributed.options import ServiceOptions

SWITCH_PORT = 50099
"""The controller port of a software switch started here: libswitchml's default."""
_CONTROLLER = "SWITCHML_CONTROLLER"
_OF_FABRICS = re.compile(
    r"(SWITCHML|TORCH|NCCL|FI|CCL|GLOO|OMP|KMP|MPICH|MPIR|I_MPI|UCX|CUDA|ROCR|HIP|ACCL)_.*|PYTHON(PATH|DONTWRITEBYTECODE)"
)
"""Variables that a user may have set for the ranks; a shell's other variables are those of each host."""
_SLURM_PORTS, _SLURM_FIRST_PORT = 12_000, 20_000
"""Below 32768, from where on Linux gives ports to connections."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """What to start and where.

    ``method`` and ``options`` are the stack's ``validate`` block. Empty ``hosts`` mean those of the scheduler's job,
    else this machine. ``launcher`` None means a choice by stack and place. ``words`` are the script and its arguments;
    it runs in ``folder`` on each host.
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
class LaunchPlan:
    """What will run. ``exported`` are those of ``variables`` whose values differ in this machine's shell."""

    request: LaunchRequest
    launcher: LauncherName
    hosts: tuple[Host, ...]
    commands: tuple[HostCommand, ...]
    variables: Mapping[str, str]
    exported: Mapping[str, str]
    switch_address: str = ""
    """The address for a software switch started with the ranks; empty if there is none."""
    services: tuple[ServiceOptions, ...] = ()

    def lines(self) -> Iterator[str]:
        """The plan as shell lines for people: the variables, the further programs, the commands."""
        for name, value in sorted(self.exported.items()):
            yield f"export {name}={shlex.quote(value)}"
        if self.switch_address:
            yield f"switchml-switch --address {self.switch_address} --controller-port {SWITCH_PORT} &"
        for service in self.services:
            yield f"{shlex.join(service.command)} &"
        for command in self.commands:
            where = "" if command.is_local or command.host is None else f"ssh {command.host.name} "
            yield where + shlex.join(command.words)


@dataclass(frozen=True, kw_only=True, slots=True)
class StackSettings:
    """The part of the stack's ``validate`` block about starting ranks; ``arguments`` are the launcher's."""

    launcher: LauncherName = "torchrun"
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    services: tuple[ServiceOptions, ...] = ()


def plan_launch(request: LaunchRequest, *, environ: Mapping[str, str]) -> LaunchPlan:
    """The commands and variables of a launch.

    Raises UsageError for contradictory parts, CommandError for a missing launcher, and the errors of
    activated_environment.
    """
    activated = activated_environment(request.prefix, environ=environ, inherit=True)
    here = Host(name="localhost", ranks=request.ranks, is_local=True)
    hosts = request.hosts or hosts_of_the_job(request.ranks, environ=activated) or (here,)
    stack = _settings(request, hosts)
    launcher = pick_launcher(request.launcher, stack.launcher, environ, hosts=bool(request.hosts))
    start = Start(
        prefix=request.prefix.absolute(),
        variables=activated,
        installed=installed_builds(request.prefix),
        hosts=hosts,
        ranks=request.ranks,
        master=meeting_point(hosts),
        port=_port(environ),
        arguments=stack.arguments if launcher == stack.launcher else (),
        words=request.words,
    )
    switch, switchml = _switch(request, start, environ)
    variables = {**_defaults(start, stack.variables), **switchml, **activated}
    return LaunchPlan(
        request=request,
        launcher=launcher,
        hosts=hosts,
        commands=_commands(
            launcher, start, stack.launcher, name_hosts=not all(host.is_local for host in request.hosts)
        ),
        variables=variables,
        exported=_exported(variables, environ),
        switch_address=switch,
        services=stack.services,
    )


def _settings(request: LaunchRequest, hosts: Sequence[Host]) -> StackSettings:
    """The stack's options; cores are divided among ranks and oneCCL's workers if all ranks are on this machine.

    Raises UsageError for a service that cannot serve these hosts.
    """
    if request.method == "switchml":
        return StackSettings()
    if request.method == "nccl":
        return StackSettings(variables=nccl_variables(request.stack, request.options))
    options = read_distributed_options(request.stack, request.options)
    prefix = {"prefix": str(request.prefix.absolute())}
    is_here = len(hosts) == 1 and hosts[0].is_local
    if options.services and not is_here:
        message = f"stack {request.stack}: {options.services[0].name} serves the ranks of one machine"
        raise UsageError(message, hint="launch it without --hosts and outside a job of several nodes")
    divided = options.affinity == "oneccl" and is_here
    affinity = plan_oneccl_affinity(usable_cores(), request.ranks) if divided else None
    own = {name: filled(text, prefix) for name, text in options.environment.items()}
    return StackSettings(
        launcher=options.launcher,
        arguments=(*options.launcher_arguments, *(() if affinity is None else affinity.mpiexec_arguments())),
        variables=own if affinity is None else {**affinity.variables(), **own},
        services=options.services,
    )


def _commands(launcher: LauncherName, start: Start, own: LauncherName, *, name_hosts: bool) -> tuple[HostCommand, ...]:
    if launcher == "torchrun":
        return torchrun_commands(start)
    if launcher == "srun":
        return srun_commands(start, is_mpi=own == "mpiexec")
    return mpiexec_commands(start, name_hosts=name_hosts)


def _port(environ: Mapping[str, str]) -> int:
    """The port at which ranks meet: a free one, or under Slurm one from the job's number, the same on all nodes."""
    job = environ.get("SLURM_JOB_ID", "")
    return _SLURM_FIRST_PORT + int(job) % _SLURM_PORTS if job.isdecimal() else choose_port()


def _switch(request: LaunchRequest, start: Start, environ: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The address for a software switch ("" for none), and the ranks' variables for it.

    Raises UsageError for a transport that it does not support if no other switch is configured.
    """
    if request.method != "switchml" or environ.get(_CONTROLLER):
        return "", {}
    transport = start.installed.get("libswitchml", " udp_").partition(" ")[2].partition("_h")[0]
    if transport == "dummy":
        return "", {_CONTROLLER: "none"}
    if transport != "udp":
        message = f"{_CONTROLLER} is not set, and no software switch can be started for libswitchml's {transport}"
        raise UsageError(message, hint=f"set {_CONTROLLER} to host:port of your switch's controller")
    remote = [host for host in start.hosts if not host.is_local]
    if remote:
        address = address_towards(remote[0].address)
        return address, {_CONTROLLER: f"{address}:{SWITCH_PORT}"}
    address = choose_loopback_network().switch
    # ranks on one host would reduce in shared memory and bypass the switch
    alone = {"SWITCHML_HOST_REDUCTION": "off", "SWITCHML_WORKER_PORT": str(choose_port())}
    return address, {_CONTROLLER: f"{address}:{SWITCH_PORT}", **alone}


def _defaults(start: Start, own: Mapping[str, str]) -> dict[str, str]:
    """The ranks' variables that the user has not set."""
    given = {name: value for name, value in rank_variables().items() if name != "PYTHONDONTWRITEBYTECODE"}
    cores = len(os.sched_getaffinity(0))
    most = max(host.ranks for host in start.hosts)
    values = {
        **given,
        **own,
        "OMP_NUM_THREADS": str(max(1, cores // most)),
        "MASTER_ADDR": start.master,
        "MASTER_PORT": str(start.port),
    }
    return values if len(start.hosts) == 1 else without_loopback(values)


def _exported(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to export: those that differ from this shell's, and those the user set for fabrics."""
    return {
        name: value for name, value in variables.items() if environ.get(name) != value or _OF_FABRICS.fullmatch(name)
    }
