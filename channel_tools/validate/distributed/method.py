# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: a process-group backend under its launcher, on this host's loopback network or on the
hosts of a scheduler's job.

Things that a stack needs of the machine and no channel can provide (a GPU, an RDMA device, the site's own libraries)
are checked before anything runs, so that a missing one is one message and not a rank's traceback.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.environments.oneccl_affinity import plan_oneccl_affinity
from channel_tools.ranks.plan import StartSettings, placement_here, plan_here
from channel_tools.ranks.services import find_program, running_services
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError, ValidationError
from channel_tools.system.kernel import usable_cores
from channel_tools.system.processes import run_command
from channel_tools.validate.distributed.checks import DistributedResult, judge_distributed
from channel_tools.validate.distributed.options import (
    distributed_document,
    make_distributed_plan,
    read_distributed_options,
)
from channel_tools.validate.model import ValidationMethod
from channel_tools.validate.ranks import (
    WORKERS,
    RankJob,
    plan_on_hosts,
    rank_words,
    read_results,
    run_job,
    worker_variables,
)
from channel_tools.validate.shell_lines import RANKS, last_line, torchrun_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from channel_tools.environments.oneccl_affinity import OneCclAffinity
    from channel_tools.ranks.plan import Placement, RankPlan
    from channel_tools.ranks.services import RunningService
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.distributed.options import DistributedOptions
    from channel_tools.validate.model import MethodContext, MethodResult

WORKER = WORKERS / "distributed_allreduce.py"
ROOT = Path("/")
_HINT = "validate on a machine that has them; building and installing the stack do not need them"
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


class DistributedMethod(ValidationMethod):
    """Runs the standard plan of allreduces through one backend and checks results, carrier and libraries."""

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise ConfigError for invalid options, UsageError for too many ranks, ValidationError for missing devices.

        There are too many where the stack has a limit, or where each needs a GPU of its own.

        Also raise UsageError for services if there are several hosts: they serve only the host that they run on.
        """
        known = read_distributed_options(stack, options)
        if hosts > 1 and known.services:
            message = f"stack {stack}: its {known.services[0].name} serves ranks of one host, not of {hosts}"
            raise UsageError(message, hint="give --nodes 1, or leave out --on")
        if ranks > known.max_ranks:
            message = f"{counted(ranks, 'rank')}: stack {stack} is validated with at most {known.max_ranks}"
            raise UsageError(message, hint=f"give --ranks 2 to {known.max_ranks}")
        check_devices(stack, known.needs)
        if known.device == "cuda":
            check_gpus(stack, ranks // hosts)

    def start_settings(
        self,
        placement: Placement,
        *,
        stack: str,
        options: Mapping[str, object],
        switch: bool = False,  # noqa: ARG002
    ) -> StartSettings:
        """See ValidationMethod.start_settings; cores are divided among ranks and oneCCL's workers on one machine."""
        known = read_distributed_options(stack, options)
        if known.services and not placement.is_here:
            message = f"stack {stack}: {known.services[0].name} serves the ranks of one machine"
            raise UsageError(message, hint="launch it without --hosts and outside a job of several nodes")
        affinity = _affinity(known, placement.ranks) if placement.is_here else None
        own = {name: value.replace("{prefix}", str(placement.prefix)) for name, value in known.environment.items()}
        return StartSettings(
            launcher=known.launcher,
            arguments=(*known.launcher_arguments, *(() if affinity is None else affinity.mpiexec_arguments())),
            variables=own if affinity is None else {**affinity.variables(), **own},
            services=known.services,
        )

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:
        """See ValidationMethod.how_to_run; services can only be started by ``channel_tools launch``."""
        if options.get("services"):
            return
        environment = options.get("environment")
        if isinstance(environment, dict) and environment:
            pairs = (f"{name}={shlex.quote(str(value))}" for name, value in environment.items())
            yield f"export {' '.join(pairs)}   # as it was validated, on one host"
        listed = options.get("imports")
        imports = "".join(f"import {name}; " for name in listed) if isinstance(listed, list) else ""
        yield f'# in train.py: {imports}torch.distributed.init_process_group("{options["backend"]}")'
        is_mpi = options.get("launcher") == "mpiexec"
        yield f"mpiexec -n {RANKS} python train.py" if is_mpi else torchrun_line()
        module, _colon, function = str(options.get("counter") or "").partition(":")
        if function:
            yield last_line(module, f"{function}()")

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        options = read_distributed_options(context.stack, context.options)
        check_site(context.stack, options.needs, variables=context.variables)
        plan = make_distributed_plan(options)
        affinity = None if context.hosts is not None else _affinity(options, context.ranks)
        with running_services(options.services, context) as services:
            program, ranks = self._start(options, context, services)
            job = RankJob(
                name=program.name,
                plan=ranks,
                ranks=context.ranks,
                document=distributed_document(plan, ranks=context.ranks, is_on_hosts=context.hosts is not None),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')}", total=None):
                run_job(job, deadline=context.deadline, companions=services)
            results = read_results(job, DistributedResult, hint="run the command again with --keep and see ranks.log")
            counts = [count for service in services if (count := service.stop()) is not None]
        return judge_distributed(
            plan,
            results,
            counts,
            prefix=context.prefix,
            launcher=program,
            affinity=affinity,
            hosts=() if context.hosts is None else context.hosts.names,
        )

    def _start(
        self, options: DistributedOptions, context: MethodContext, services: Sequence[RunningService]
    ) -> tuple[Path, RankPlan]:
        """The program that starts the ranks, and the plan; the stack's variables override those of its services."""
        words = rank_words(WORKER, context.folder)
        if context.hosts is not None:
            own = {name: value.replace("{prefix}", str(context.prefix)) for name, value in options.environment.items()}
            ranks = plan_on_hosts(self, context, context.hosts, words=words, own=own)
            return Path(ranks.launcher), ranks
        placement = placement_here(context.prefix, context.ranks, variables=context.variables)
        settings = self.start_settings(placement, stack=context.stack, options=context.options)
        service_variables = {name: value for service in services for name, value in service.rank_variables.items()}
        variables = {**context.variables, **worker_variables(context.folder), **service_variables, **settings.variables}
        program = context.prefix.resolve() / "bin" / settings.launcher
        if settings.launcher != "torchrun":
            hint = "add an MPI to the stack's install list, or load the site's"
            program = find_program(settings.launcher, context, hint=hint).parent.resolve() / settings.launcher
        placed = replace(placement, variables=variables)
        return program, plan_here(placed, settings, stack=context.stack, words=words, folder=context.folder)


METHOD = DistributedMethod()


def _affinity(options: DistributedOptions, ranks: int) -> OneCclAffinity | None:
    """The cores of ranks on this machine and of oneCCL's workers, for a stack that divides them."""
    return plan_oneccl_affinity(usable_cores(), ranks) if options.affinity == "oneccl" else None


def check_devices(stack: str, needs: Sequence[str], *, root: Path = ROOT) -> None:
    """Raise ValidationError naming the devices that this machine lacks; before anything is installed."""
    _refuse(stack, list(_absent_devices(needs, root)))


def count_gpus(root: Path = ROOT) -> int:
    """The NVIDIA GPUs of this machine that have a driver."""
    return sum(1 for _ in (root / "dev").glob("nvidia[0-9]*"))


def check_gpus(stack: str, ranks: int, *, root: Path = ROOT) -> None:
    """Raise UsageError for more ranks than this machine has NVIDIA GPUs; not where it has none."""
    gpus = count_gpus(root)
    if gpus and ranks > gpus:
        message = f"{counted(ranks, 'rank')}: stack {stack} needs a GPU for each rank, and this machine has {gpus}"
        raise UsageError(message, hint=f"give --ranks {gpus}" if gpus > 1 else "validate on a machine with two GPUs")


def check_site(stack: str, needs: Sequence[str], *, variables: Mapping[str, str]) -> None:
    """Raise ValidationError naming the site's libraries, programs and variables that the environment lacks."""
    _refuse(stack, list(_absent_of_site(needs, variables)))


def _refuse(stack: str, absent: Sequence[str]) -> None:
    if absent:
        raise ValidationError(f"stack {stack}: this machine lacks: {'; '.join(absent)}", hint=_HINT)


def _absent_devices(needs: Sequence[str], root: Path) -> Iterator[str]:
    if "gpu" in needs and not count_gpus(root):
        yield f"an NVIDIA GPU with its driver (no {root / 'dev'}/nvidia0)"
    if "amdgpu" in needs and not (root / "dev/kfd").exists():
        yield f"an AMD GPU with its driver (no {root / 'dev'}/kfd)"
    devices = root / "sys/class/infiniband"
    if "rdma" in needs and not (devices.is_dir() and any(devices.iterdir())):
        yield f"an RDMA device (none in {devices})"


def _absent_of_site(needs: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    for need in needs:
        kind, _, name = need.partition(":")
        if kind == "library" and (reason := _why_not_loaded(name, variables)):
            yield f"the library {name} ({reason})"
        if kind == "program" and shutil.which(name, path=variables.get("PATH", "")) is None:
            yield f"the program {name} (not on the PATH of the activated environment)"
        if kind == "variable" and not variables.get(name):
            yield f"the variable {name} (not set in the activated environment)"


def _why_not_loaded(name: str, variables: Mapping[str, str]) -> str:
    """The loader's error for a library in the activated environment; "" if it loads."""
    result = run_command([sys.executable, "-I", "-S", "-c", _LOAD, name], env=variables, check=False)
    return "" if result.returncode == 0 else result.tail().splitlines()[-1].removeprefix("OSError: ")
