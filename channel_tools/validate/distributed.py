# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: a process-group backend under its launcher, on this host's loopback network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.errors import UsageError
from channel_tools.validate.distributed_checks import judge_distributed
from channel_tools.validate.distributed_options import read_distributed_options
from channel_tools.validate.distributed_plan import distributed_document, make_distributed_plan
from channel_tools.validate.distributed_ranks import DistributedResult
from channel_tools.validate.launch import WORKERS, RankJob, rank_variables, read_results, run_job, torchrun
from channel_tools.validate.needs import check_devices, check_site
from channel_tools.validate.services import find_program, running_services

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from channel_tools.validate.context import MethodContext
    from channel_tools.validate.distributed_options import DistributedOptions
    from channel_tools.validate.model import MethodResult
    from channel_tools.validate.services import RunningService

WORKER = WORKERS / "distributed_allreduce.py"


class DistributedMethod:
    """Runs the standard plan of allreduces through one backend and judges results, carrier and libraries."""

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object]) -> None:
        """Raise ConfigError for options that are none, UsageError for too many ranks, ValidationError for devices."""
        known = read_distributed_options(stack, options)
        if ranks > known.max_ranks:
            message = f"{ranks} ranks: stack {stack} is validated with at most {known.max_ranks}"
            raise UsageError(message, hint=f"give --ranks 2 to {known.max_ranks}")
        check_devices(stack, known.needs)

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        options = read_distributed_options(context.stack, context.options)
        check_site(context.stack, options.needs, variables=context.variables)
        plan = make_distributed_plan(options)
        program, command = _launcher(options, context)
        with running_services(options.services, context) as services:
            job = RankJob(
                name=program.name,
                launcher=command,
                worker=WORKER,
                variables=_variables(options, context, services),
                ranks=context.ranks,
                document=distributed_document(plan, ranks=context.ranks),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {context.ranks} ranks", total=None):
                run_job(job, deadline=context.deadline, companions=services)
            results = read_results(
                job, DistributedResult, hint="run the command again with --keep and look at ranks.log"
            )
            counts = [count for service in services if (count := service.stop()) is not None]
        return judge_distributed(plan, results, counts, prefix=context.prefix, launcher=program)


def _variables(
    options: DistributedOptions, context: MethodContext, services: Sequence[RunningService]
) -> dict[str, str]:
    """What the ranks run with; what the stack sets comes before what its services say."""
    own = {name: value.replace("{prefix}", str(context.prefix)) for name, value in options.environment.items()}
    given = {name: value for service in services for name, value in service.rank_variables.items()}
    return {**context.variables, **rank_variables(), **given, **own}


def _launcher(options: DistributedOptions, context: MethodContext) -> tuple[Path, tuple[str | Path, ...]]:
    """The program that starts the ranks, and the command up to what each rank runs."""
    prefix, ranks = context.prefix, context.ranks
    if options.launcher == "torchrun":
        return prefix.resolve() / "bin" / "torchrun", (*torchrun(prefix, ranks), *options.launcher_arguments)
    found = find_program(options.launcher, context, hint="add an MPI to the stack's install list, or load the site's")
    program = found.parent.resolve() / options.launcher
    python = prefix / "bin" / "python"
    return program, (program, *options.launcher_arguments, "-n", str(ranks), python)
