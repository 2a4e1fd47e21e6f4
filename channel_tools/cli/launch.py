# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools launch``: runs a script as the ranks of a stack."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from channel_tools.cli import options
from channel_tools.cli.console import handled, print_line, print_note, shown_progress, write_result

if TYPE_CHECKING:
    from channel_tools.ranks.plan import RankPlan

_RANKS_AT_MOST = 100_000

# the same closed sets as channel_tools.ranks has, which is too slow to import for --help
_Launcher = Literal["torchrun", "mpiexec", "srun"]
_Scheduler = Literal["slurm", "pbs"]


_Script = Annotated[
    list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The Python script and its own arguments.")
]
_Stack = Annotated[str | None, options.stack_option("that of the environment")]
_Ranks = Annotated[int, typer.Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes in all.")]
_Hosts = Annotated[
    Path | None,
    typer.Option(help="A file with a host per line: NAME or NAME:RANKS.", show_default="the job's, else this machine"),
]
_Prefix = Annotated[
    Path | None, typer.Option(help="The environment, at the same path on each host.", show_default="the active one")
]
_ByLauncher = Annotated[
    _Launcher | None,
    typer.Option(help="The program that starts the ranks.", show_default="srun in a Slurm job, else the stack's"),
]
_Emit = Annotated[_Scheduler | None, typer.Option(help="Write a job script instead of running it.", show_default=False)]
_To = Annotated[Path | None, typer.Option("-o", help="The job script's file.", show_default="stdout")]
_Nodes = Annotated[int, typer.Option(min=1, max=_RANKS_AT_MOST, help="The nodes of the job script.")]
_Time = Annotated[str, typer.Option(help="The time limit of the job script, HH:MM:SS.")]


@handled
def launch(
    script: _Script,
    *,
    stack: _Stack = None,
    ranks: _Ranks = 2,
    hosts: _Hosts = None,
    prefix: _Prefix = None,
    launcher: _ByLauncher = None,
    dry_run: options.DryRun = False,
    emit: _Emit = None,
    to: _To = None,
    nodes: _Nodes = 1,
    time: _Time = "01:00:00",
    root: options.Root = None,
) -> None:
    """Run SCRIPT as the ranks of a stack, with the variables and programs that the stack needs.

    Without --stack, it is the stack that the environment was made for.
    """
    from channel_tools.workflow.launch import ScriptRequest, check_script, plan_script, write_job

    request = ScriptRequest(
        stack=stack, ranks=ranks, words=tuple(script), hosts_file=hosts, prefix=prefix, launcher=launcher,
        folder=Path.cwd(),
    )  # fmt: skip
    with options.settings_for_stacks(root, None, prefix=prefix, is_named=stack is not None) as settings:
        if emit is not None:
            write_result(write_job(settings, request, scheduler=emit, nodes=nodes, time=time, environ=os.environ), to)
            return
        plan = plan_script(settings, request, environ=os.environ)
    if not dry_run:
        check_script(request)
    for line in plan.lines():
        (print_line if dry_run else print_note)(line)
    if not dry_run:
        _run(plan)


def _run(plan: RankPlan) -> None:
    """Run the plan; raises typer.Exit with the script's exit code."""
    from channel_tools.ranks.run import run_with_services

    with shown_progress() as progress:
        code = run_with_services(plan, progress=progress)
    raise typer.Exit(code)
