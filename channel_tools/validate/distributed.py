# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: a process-group backend under its launcher, on this host's loopback network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.errors import UsageError, ValidationError
from channel_tools.validate.distributed_checks import judge_distributed
from channel_tools.validate.distributed_options import read_distributed_options
from channel_tools.validate.distributed_plan import distributed_document, make_distributed_plan
from channel_tools.validate.distributed_ranks import DistributedResult
from channel_tools.validate.launch import WORKERS, RankJob, rank_variables, read_results, run_job, torchrun
from channel_tools.validate.needs import check_devices, check_site

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.validate.context import MethodContext
    from channel_tools.validate.distributed_options import DistributedOptions
    from channel_tools.validate.model import MethodResult

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
        job = RankJob(
            name=program.name,
            launcher=command,
            worker=WORKER,
            variables={**context.variables, **rank_variables(), **_own_variables(options, context.prefix)},
            ranks=context.ranks,
            document=distributed_document(plan, ranks=context.ranks),
            folder=context.folder,
        )
        with context.progress.task(f"allreduces of {context.ranks} ranks", total=None):
            run_job(job, deadline=context.deadline)
        results = read_results(job, DistributedResult, hint="run the command again with --keep and look at ranks.log")
        return judge_distributed(plan, results, prefix=context.prefix, launcher=program)


def _own_variables(options: DistributedOptions, prefix: Path) -> dict[str, str]:
    return {name: value.replace("{prefix}", str(prefix)) for name, value in options.environment.items()}


def _launcher(options: DistributedOptions, context: MethodContext) -> tuple[Path, tuple[str | Path, ...]]:
    """The program that starts the ranks, and the command up to what each rank runs."""
    prefix, ranks = context.prefix, context.ranks
    if options.launcher == "torchrun":
        return prefix.resolve() / "bin" / "torchrun", (*torchrun(prefix, ranks), *options.launcher_arguments)
    found = shutil.which(options.launcher, path=context.variables.get("PATH", ""))
    if found is None:
        message = f"stack {context.stack}: the activated environment {prefix} has no {options.launcher}"
        raise ValidationError(message, hint="add an MPI to the stack's install list, or load the site's")
    program = Path(found).parent.resolve() / options.launcher
    python = prefix / "bin" / "python"
    return program, (program, *options.launcher_arguments, "-n", str(ranks), python)
