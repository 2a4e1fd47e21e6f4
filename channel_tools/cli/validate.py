# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools validate``: runs a distributed allreduce in an environment from the channel, here or on a cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from channel_tools.cli import options
from channel_tools.cli.console import (
    handled,
    print_json,
    print_line,
    print_note,
    print_outcome,
    print_table,
    shown_progress,
    write_result,
)
from channel_tools.cli.options import grouped
from channel_tools.requests.validate import SchedulerName, ValidateRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from channel_tools.system.settings import Settings
    from channel_tools.validate import ValidationReport
    from channel_tools.validate.variants import VariantResult

_RANKS_AT_MOST = 10_000

_VALIDATE: options.Declared = {
    "install": {
        "stack": Annotated[str | None, options.stack_option("that of --prefix, else the default stack")],
        "python": options.Python,
        "pytorch": options.Pytorch,
        "channels": options.Channels,
    },
    "all_variants": Annotated[
        bool,
        typer.Option(
            "--all-variants", help="For every Python and PyTorch that the channel has, in turn; also within one job."
        ),
    ],
    "prefix": Annotated[
        Path | None,
        typer.Option(help="Validate in this environment and keep it.", show_default="a new one, removed afterwards"),
    ],
    "keep": Annotated[bool, typer.Option("--keep", help="Keep the new environment and the logs of the run.")],
    "timeout_s": Annotated[
        float | None,
        typer.Option(
            "--timeout", min=1, help="Time limit in seconds for the run after installing.", show_default="600"
        ),
    ],
    "history": Annotated[
        bool, typer.Option("--history", help="Keep the report with earlier ones, and report what has become slower.")
    ],
    "fail_on_drop": Annotated[
        bool,
        typer.Option("--fail-on-drop", help="With --history: exit with 10 if bandwidth drops by more than the noise."),
    ],
    "details": Annotated[
        bool, typer.Option("--details", help="Print the report's tables before the line with the result.")
    ],
    "as_json": options.Json,
    "job": {
        "on": Annotated[
            Literal["slurm", "pbs", "job"] | None,
            typer.Option(help="Run as a job of Slurm or PBS; job: on the nodes of the current job."),
        ],
        "emit": Annotated[
            SchedulerName | None,
            typer.Option(help="Write the job script instead of submitting it.", show_default=False),
        ],
        "to": Annotated[Path | None, typer.Option("-o", help="The job script's file.", show_default="stdout")],
        "nodes": Annotated[
            int | None, typer.Option(min=1, max=_RANKS_AT_MOST, help="The nodes of the job.", show_default="2")
        ],
        "ranks_per_node": Annotated[
            int | None, typer.Option(min=1, max=_RANKS_AT_MOST, help="Ranks on each node of the job.", show_default="2")
        ],
        "time": Annotated[
            str | None,
            typer.Option(
                help="The time limit of the job, HH:MM:SS.",
                show_default="20 minutes and --timeout for each variant, at least 00:30:00",
            ),
        ],
        "local_scratch": Annotated[
            str | None,
            typer.Option(
                metavar="FOLDER",
                help="Install on each node's own disk, into this folder, such as /local or '$TMPDIR'.",
                show_default="one installation, in a folder that the nodes share",
            ),
        ],
        "submit_options": Annotated[
            list[str] | None,
            typer.Option("--submit-option", help="An option for sbatch or qsub; may be repeated.", show_default=False),
        ],
    },
    "ranks": Annotated[
        int | None,
        typer.Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes of the allreduce.", show_default="2"),
    ],
}
"""The options, by the fields of ValidateRequest."""


@handled
@grouped(ValidateRequest, _VALIDATE)
def validate(request: ValidateRequest, *, root: options.Root = None, output: options.Output = None) -> None:
    """Install a stack from the channel, run a distributed allreduce in it, and report what carried the data."""
    channels, prefix = request.install.channels, request.prefix
    with options.settings_for_stacks(root, output, channels=channels, prefix=prefix) as settings:
        if request.job.emit is not None:
            from channel_tools.workflow.validate import write_validation_job

            write_result(write_validation_job(settings, request, folder=Path.cwd()), request.job.to)
        elif request.job.scheduler is not None:
            _run_job(settings, request)
        else:
            _run_here(settings, request)


def _run_job(settings: Settings, request: ValidateRequest) -> None:
    """Submit the job; raises typer.Exit with the exit code of its command."""
    from channel_tools.ranks.jobs import Listener
    from channel_tools.workflow.validate import run_validation_job

    listener = Listener(note=print_note, output=_written_to(sys.stdout), errors=_written_to(sys.stderr))
    code = run_validation_job(settings, request, folder=Path.cwd(), environ=os.environ, listener=listener)
    raise typer.Exit(code)


def _written_to(stream: TextIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        stream.buffer.write(data)
        stream.flush()

    return write


def _run_here(settings: Settings, request: ValidateRequest) -> None:
    from channel_tools.validate.variants import raise_worst
    from channel_tools.workflow.validate import validate_variants

    with shown_progress() as progress:
        results = validate_variants(settings, request, environ=os.environ, progress=progress)
    if request.as_json:
        _print_documents(results, all_variants=request.all_variants)
    else:
        _print_results(results, all_variants=request.all_variants, details=request.details)
    raise_worst(results)


def _print_documents(results: Sequence[VariantResult], *, all_variants: bool) -> None:
    from channel_tools.validate import report_document

    documents = [report_document(one.report) for one in results if one.report is not None]
    if all_variants:
        variants = [
            {
                "python": one.python,
                "pytorch": one.pytorch,
                "passed": one.error is None,
                "report": None if one.path is None else str(one.path),
                "error": None if one.error is None else one.error.message,
            }
            for one in results
        ]
        print_json({"schema": 1, "variants": variants, "reports": documents})
    elif documents:
        print_json(documents[0])


def _print_results(results: Sequence[VariantResult], *, all_variants: bool, details: bool) -> None:
    for one in results:
        if one.report is not None and one.path is not None:
            print_report(one.report, one.path, details=details)
    if all_variants:
        print_line("")
        rows = [(one.python or "", one.pytorch or "", one.verdict.words, str(one.path or "")) for one in results]
        print_table(("python", "pytorch", "result", "report"), rows, title=counted(len(results), "variant"))


def print_report(report: ValidationReport, path: Path, *, details: bool) -> None:
    """Print the result in one line, after the tables of the report if ``details`` are wanted; ``path`` is its file."""
    from channel_tools.validate import report_tables, result_line

    for table in report_tables(report) if details else ():
        print_table(table.columns, table.rows, title=table.title)
        print_line("")
    verdict = "FAILED" if report.failed_checks else "PASSED"
    print_outcome(verdict, result_line(report, path).removeprefix(f"{verdict} "))
