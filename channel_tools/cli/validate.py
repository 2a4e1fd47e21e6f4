# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools validate``: runs a distributed allreduce in an environment from the channel, here or on a cluster."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.cli.console import (
    handled,
    print_gap,
    print_json,
    print_line,
    print_note,
    print_outcome,
    print_table,
    write_result,
)
from channel_tools.cli.options import asks
from channel_tools.cli.progress import shown_progress
from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.options import words_of
from channel_tools.requests.validate import Ranks, Timeout, ValidateRequest
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from channel_tools.system.settings import Settings
    from channel_tools.validate import ReportTable, ValidationReport
    from channel_tools.validate.report import VariantResult


@handled
@asks(ValidateRequest)
def validate(request: ValidateRequest, *, root: options.Root = None, output: options.Output = None) -> None:
    """Install a stack from the channel, run a distributed allreduce in it, and report what carried the data."""
    channels, prefix = request.install.channels, request.prefix
    if request.image is not None:
        from channel_tools.workflow.images import run_in_image

        given = words_of(request, omit={"image", "as_installed", "local_scratch"})
        places = [*options.root_words(root), *([] if output is None else ["--output", str(output)])]
        before = ["validate", *places, *given, "--as-installed", "--prefix"]
        with shown_progress() as progress:
            run_in_image(
                request.image,
                lambda prefix: [*before, prefix],
                local_scratch=request.job.local_scratch,
                environ=os.environ,
                progress=progress,
            )
    with options.settings_for_stacks(root, output, channels=channels, prefix=prefix) as settings:
        if request.job.emit is not None:
            from channel_tools.workflow.validate import write_validation_job

            write_result(write_validation_job(settings, request, folder=Path.cwd()), request.job.to)
        elif request.job.scheduler is not None:
            from channel_tools.ranks.jobs import Listener
            from channel_tools.system.processes import pass_on_errors
            from channel_tools.workflow.validate import run_validation_job

            listener = Listener(note=print_note, output=_write_output, errors=pass_on_errors)
            code = run_validation_job(settings, request, folder=Path.cwd(), environ=os.environ, listener=listener)
            raise typer.Exit(code)
        else:
            _run_here(settings, request, partial(print_report, details=request.details))


@handled
def bench(
    prefix: Annotated[
        Path | None, typer.Argument(help="An environment of the stack.", show_default="the active one")
    ] = None,
    *,
    stack: Annotated[str | None, options.stack_option("that of the environment, else the default stack")] = None,
    ranks: Ranks = None,
    timeout_s: Timeout = None,
    root: options.Root = None,
    output: options.Output = None,
    as_json: options.Json = False,
) -> None:
    """Measure an installed stack's allreduce beside gloo's, of one size after the other; nothing is installed.

    It is the run of `validate`, whose checks say whether the stack carried the data: if one fails, so does this.
    """
    from channel_tools.environments import check_environment
    from channel_tools.workflow.launch import chosen_prefix

    chosen = chosen_prefix(prefix, os.environ)
    check_environment(chosen)
    request = ValidateRequest(
        install=InstallRequest(stack=stack),
        prefix=chosen,
        as_installed=True,
        ranks=ranks,
        timeout_s=timeout_s,
        as_json=as_json,
    )
    with options.settings_for_stacks(root, output, prefix=chosen, is_named=stack is not None) as settings:
        _run_here(settings, request, print_rates)


def _write_output(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def _run_here(
    settings: Settings, request: ValidateRequest, print_one: Callable[[ValidationReport, Path], None]
) -> None:
    from channel_tools.validate.report import raise_worst
    from channel_tools.workflow.validate import validate_variants

    with shown_progress() as progress:
        results = validate_variants(settings, request, environ=os.environ, progress=progress)
    if request.as_json:
        _print_documents(results, all_variants=request.all_variants)
    else:
        for result in results:
            if result.report is not None and result.path is not None:
                print_one(result.report, result.path)
        if request.all_variants:
            print_line("")
            rows = [
                (result.python or "", result.pytorch or "", result.verdict.words, str(result.path or ""))
                for result in results
            ]
            print_table(("python", "pytorch", "result", "report"), rows, title=counted(len(results), "variant"))
    raise_worst(results)


def _print_documents(results: Sequence[VariantResult], *, all_variants: bool) -> None:
    from channel_tools.validate import report_document

    documents = [report_document(result.report) for result in results if result.report is not None]
    if all_variants:
        variants = [
            {
                "python": result.python,
                "pytorch": result.pytorch,
                "passed": result.error is None,
                "report": None if result.path is None else str(result.path),
                "error": None if result.error is None else result.error.message,
            }
            for result in results
        ]
        print_json({"schema": 1, "variants": variants, "reports": documents})
    elif documents:
        print_json(documents[0])


def print_report(report: ValidationReport, path: Path, *, details: bool) -> None:
    """Print the result in one line, after the tables of the report if ``details`` are wanted; ``path`` is its file."""
    from channel_tools.validate import report_tables

    _print_with(report_tables(report) if details else (), report, path)


def print_rates(report: ValidationReport, path: Path) -> None:
    """Print the rates of the report, why they may be rough, and the result in one line; ``path`` is its file."""
    from channel_tools.validate import bandwidth_tables, doubts

    _print_with(bandwidth_tables(report), report, path, notes=(*doubts(report), *report.result.remarks))


def _print_with(
    tables: Iterable[ReportTable], report: ValidationReport, path: Path, *, notes: Sequence[str] = ()
) -> None:
    from channel_tools.validate import result_line

    for table in tables:
        print_table(table.columns, table.rows, title=table.title)
        print_gap()
    for note in notes:
        print_note(note)
    verdict = "FAILED" if report.failed_checks else "PASSED"
    print_outcome(verdict, result_line(report, path).removeprefix(f"{verdict} "))
