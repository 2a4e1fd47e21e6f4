# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools launch``: runs a script as the ranks of a stack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_line, print_note, write_result
from channel_tools.cli.options import grouped
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.launch import LauncherName, ScriptRequest
from channel_tools.requests.validate import SchedulerName

if TYPE_CHECKING:
    from channel_tools.ranks.plan import RankPlan

_RANKS_AT_MOST = 100_000
_LAUNCH: options.Declared = {
    "words": Annotated[
        list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The Python script and its own arguments.")
    ],
    "stack": Annotated[str | None, options.stack_option("that of the environment")],
    "ranks": Annotated[int, typer.Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes in all.")],
    "hosts_file": Annotated[
        Path | None,
        typer.Option(
            "--hosts",
            help="A file with a host per line: NAME or NAME:RANKS.",
            show_default="the job's, else this machine",
        ),
    ],
    "prefix": Annotated[
        Path | None, typer.Option(help="The environment, at the same path on each host.", show_default="the active one")
    ],
    "launcher": Annotated[
        LauncherName | None,
        typer.Option(help="The program that starts the ranks.", show_default="srun in a Slurm job, else the stack's"),
    ],
    "dry_run": options.DryRun,
    "emit": Annotated[
        SchedulerName | None, typer.Option(help="Write a job script instead of running it.", show_default=False)
    ],
    "to": Annotated[Path | None, typer.Option("-o", help="The job script's file.", show_default="stdout")],
    "nodes": Annotated[
        int | None, typer.Option(min=1, max=_RANKS_AT_MOST, help="The nodes of the job script.", show_default="1")
    ],
    "time": Annotated[
        str | None, typer.Option(help="The time limit of the job script, HH:MM:SS.", show_default="01:00:00")
    ],
}
"""The options, by the fields of ScriptRequest."""


@handled
@grouped(ScriptRequest, _LAUNCH)
def launch(request: ScriptRequest, *, root: options.Root = None) -> None:
    """Run SCRIPT as the ranks of a stack, with the variables and programs that the stack needs.

    Without --stack, it is the stack that the environment was made for.
    """
    from channel_tools.workflow.launch import check_script, plan_script, write_job

    is_named = request.stack is not None
    with options.settings_for_stacks(root, None, prefix=request.prefix, is_named=is_named) as settings:
        if request.emit is not None:
            write_result(write_job(settings, request, environ=os.environ), request.to)
            return
        plan = plan_script(settings, request, environ=os.environ)
    if not request.dry_run:
        check_script(request)
    for line in plan.lines():
        (print_line if request.dry_run else print_note)(line)
    if not request.dry_run:
        _run(plan)


def _run(plan: RankPlan) -> None:
    """Run the plan; raises typer.Exit with the script's exit code."""
    from channel_tools.ranks.run import run_with_services

    with shown_progress() as progress:
        code = run_with_services(plan, progress=progress)
    raise typer.Exit(code)
