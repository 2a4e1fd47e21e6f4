# SPDX-License-Identifier: BSD-3-Clause
"""``channel_tools validate``: runs a distributed allreduce in an environment from the channel, here or on a cluster."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
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
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.system.settings import Settings
    from channel_tools.validate import ValidationReport
    from channel_tools.workflow.validation import VariantResult
    from channel_tools.workflow.validation_job import ValidationJob

_RANKS_AT_MOST = 10_000
_DEFAULT_NODES, _DEFAULT_RANKS = 2, 2

# the same closed set as channel_tools.ranks has, which is too slow to import for --help
_Scheduler = Literal["slurm", "pbs"]


@dataclass(frozen=True, kw_only=True)
class _ValidateOptions:
    """What to validate, and how."""

    stack: Annotated[str | None, options.stack_option("that of --prefix, else the default stack")] = None
    python: options.Python = None
    pytorch: options.Pytorch = None
    all_variants: Annotated[
        bool,
        typer.Option(
            "--all-variants", help="For every Python and PyTorch that the channel has, in turn; also within one job."
        ),
    ] = False
    channels: options.Channels = None
    prefix: Annotated[
        Path | None,
        typer.Option(help="Validate in this environment and keep it.", show_default="a new one, removed afterwards"),
    ] = None
    keep: Annotated[bool, typer.Option("--keep", help="Keep the new environment and the logs of the run.")] = False
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=1, help="Time limit in seconds for the run after installing.", show_default="600"
        ),
    ] = None
    history: Annotated[
        bool, typer.Option("--history", help="Keep the report with earlier ones, and report what has become slower.")
    ] = False
    fail_on_drop: Annotated[
        bool,
        typer.Option("--fail-on-drop", help="With --history: exit with 10 if bandwidth drops by more than the noise."),
    ] = False
    details: Annotated[
        bool, typer.Option("--details", help="Print the report's tables before the line with the result.")
    ] = False
    as_json: options.Json = False

    def check_results(self) -> None:
        """Raise UsageError for options on the results that contradict each other."""
        if self.fail_on_drop and not self.history:
            raise UsageError("--fail-on-drop without --history: nothing to compare with", hint="give --history as well")
        if self.details and self.as_json:
            raise UsageError("--details prints tables, --json prints only JSON", hint="leave one of the two out")

    def words(self) -> Iterator[str]:
        """The same options as words for the command of a job."""
        for channel in self.channels or ():
            yield from ("--channel", channel)
        for name, version in (("--python", self.python), ("--pytorch", self.pytorch)):
            if version is not None:
                yield from (name, version)
        if self.prefix is not None:
            yield from ("--prefix", str(self.prefix))
        if self.timeout_s is not None:
            yield from ("--timeout", str(self.timeout_s))
        flags = {
            "--all-variants": self.all_variants,
            "--keep": self.keep, "--history": self.history, "--fail-on-drop": self.fail_on_drop,
            "--details": self.details, "--json": self.as_json,
        }  # fmt: skip
        yield from (flag for flag, given in flags.items() if given)


@dataclass(frozen=True, kw_only=True)
class _ClusterOptions(_ValidateOptions):
    """Where the ranks run."""

    on: Annotated[
        Literal["slurm", "pbs", "job"] | None,
        typer.Option(help="Run as a job of Slurm or PBS; job: on the nodes of the current job."),
    ] = None
    emit: Annotated[
        _Scheduler | None, typer.Option(help="Write the job script instead of submitting it.", show_default=False)
    ] = None
    to: Annotated[Path | None, typer.Option("-o", help="The job script's file.", show_default="stdout")] = None
    nodes: Annotated[
        int | None, typer.Option(min=1, max=_RANKS_AT_MOST, help="The nodes of the job.", show_default="2")
    ] = None
    ranks_per_node: Annotated[
        int | None, typer.Option(min=1, max=_RANKS_AT_MOST, help="Ranks on each node of the job.", show_default="2")
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            help="The time limit of the job, HH:MM:SS.",
            show_default="20 minutes and --timeout for each variant, at least 00:30:00",
        ),
    ] = None
    local_scratch: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Install on each node's own disk, into this folder, such as /local or '$TMPDIR'.",
            show_default="one installation, in a folder that the nodes share",
        ),
    ] = None
    submit_options: Annotated[
        list[str] | None,
        typer.Option("--submit-option", help="An option for sbatch or qsub; may be repeated.", show_default=False),
    ] = None

    def check(self, ranks: int | None) -> None:
        """Raise UsageError for options that contradict each other."""
        self.check_results()
        if self.on is not None and self.emit is not None:
            message = "--on runs the validation, --emit only writes a script"
            raise UsageError(message, hint="leave one of the two out")
        if self.all_variants and (self.channels or self.python or self.pytorch or self.prefix):
            message = "--all-variants validates the local channel's variants, each in a new environment"
            hint = "leave out --channel, --python, --pytorch and --prefix, or leave out --all-variants"
            raise UsageError(message, hint=hint)
        if self.local_scratch is not None and self.prefix is not None:
            message = "--local-scratch installs into a new folder on each node, --prefix names an existing one"
            raise UsageError(message, hint="leave one of the two out")
        if self.to is not None and self.emit is None:
            raise UsageError("-o without --emit: it names the file of --emit", hint="give --emit slurm or pbs as well")
        of_jobs = {
            "--nodes": self.nodes, "--ranks-per-node": self.ranks_per_node, "--time": self.time,
            "--submit-option": self.submit_options, "--local-scratch": self.local_scratch,
        }  # fmt: skip
        if self.on is None and self.emit is None:
            for name, value in of_jobs.items():
                if value is not None:
                    raise UsageError(f"{name} is only for jobs", hint="give --on slurm or pbs as well")
        elif ranks is not None:
            message = "--ranks is for this machine; a job has --nodes times --ranks-per-node ranks"
            raise UsageError(message, hint="give these two instead")

    def job(self, scheduler: _Scheduler) -> ValidationJob:
        """The job to submit or write."""
        from channel_tools.workflow.validation_job import ValidationJob

        return ValidationJob(
            scheduler=scheduler,
            stack=self.stack,
            nodes=self.nodes or _DEFAULT_NODES,
            ranks_per_node=self.ranks_per_node or _DEFAULT_RANKS,
            time=self.time,
            timeout_s=self.timeout_s,
            all_variants=self.all_variants,
            words=(*self.words(), *(("--local-scratch", self.local_scratch) if self.local_scratch else ())),
            folder=Path.cwd(),
            submit_options=tuple(self.submit_options or ()),
        )

    @property
    def ranks(self) -> int:
        """The job's number of ranks."""
        return (self.nodes or _DEFAULT_NODES) * (self.ranks_per_node or _DEFAULT_RANKS)

    def hosts(self, settings: Settings) -> RankHosts | None:
        """The hosts of the job that this runs in; None if there is one node."""
        from channel_tools.workflow.validation_job import hosts_of_this_job

        nodes, each = self.nodes or _DEFAULT_NODES, self.ranks_per_node or _DEFAULT_RANKS
        return hosts_of_this_job(settings, self.stack, nodes=nodes, ranks_per_node=each, environ=os.environ)

    @property
    def scratch(self) -> Path | None:
        """The folder on each node for this job's environment."""
        from channel_tools.workflow.validation_job import local_scratch_of

        return None if self.local_scratch is None else local_scratch_of(self.local_scratch, os.environ)


@handled
@grouped(_ClusterOptions)
def validate(
    given: _ClusterOptions,
    *,
    ranks: Annotated[
        int | None,
        typer.Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes of the allreduce.", show_default="2"),
    ] = None,
    root: options.Root = None,
    output: options.Output = None,
) -> None:
    """Install a stack from the channel, run a distributed allreduce in it, and report what carried the data."""
    given.check(ranks)
    with options.settings_for_stacks(root, output, channels=given.channels or (), prefix=given.prefix) as settings:
        if given.emit is not None:
            from channel_tools.workflow.validation_job import write_validation_job

            write_result(write_validation_job(settings, given.job(given.emit)), given.to)
        elif given.on is not None and given.on != "job":
            _run_job(settings, given.job(given.on))
        else:
            _run_here(settings, given, ranks)


def _run_job(settings: Settings, job: ValidationJob) -> None:
    """Submit the job; raises typer.Exit with the exit code of its command."""
    from channel_tools.ranks.jobs import Listener
    from channel_tools.workflow.validation_job import run_validation_job

    listener = Listener(note=print_note, output=_written_to(sys.stdout), errors=_written_to(sys.stderr))
    raise typer.Exit(run_validation_job(settings, job, environ=os.environ, listener=listener))


def _written_to(stream: TextIO) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        stream.buffer.write(data)
        stream.flush()

    return write


def _run_here(settings: Settings, given: _ClusterOptions, ranks: int | None) -> None:
    from channel_tools.validate.runner import DEFAULT_TIMEOUT_S
    from channel_tools.workflow.environment import InstallRequest, built_requests
    from channel_tools.workflow.validation import ValidateRequest, raise_worst, stack_of, validate_variants

    channels = tuple(given.channels or ())
    stack = stack_of(settings, given.stack, given.prefix)
    install = InstallRequest(stack=stack, channels=channels, python=given.python, pytorch=given.pytorch)
    request = ValidateRequest(
        install=install,
        ranks=given.ranks if given.on else ranks or _DEFAULT_RANKS,
        prefix=given.prefix,
        keep=given.keep,
        timeout_s=DEFAULT_TIMEOUT_S if given.timeout_s is None else given.timeout_s,
        environ=os.environ,
        keeps_history=given.history,
        hosts=given.hosts(settings) if given.on else None,
        local_scratch=given.scratch,
    )
    installs = built_requests(settings, given.stack) if given.all_variants else [install]
    with shown_progress() as progress:
        results = validate_variants(settings, request, installs, fails_on_drop=given.fail_on_drop, progress=progress)
    if given.as_json:
        _print_documents(results, all_variants=given.all_variants)
    else:
        _print_results(results, all_variants=given.all_variants, details=given.details)
    raise_worst(results)


def _print_documents(results: Sequence[VariantResult], *, all_variants: bool) -> None:
    from channel_tools.validate import report_document

    documents = [report_document(one.report) for one in results if one.report is not None]
    if all_variants:
        variants = [
            {
                "python": one.install.python,
                "pytorch": one.install.pytorch,
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
        rows = [
            (one.install.python or "", one.install.pytorch or "", one.verdict.words, str(one.path or ""))
            for one in results
        ]
        print_table(("python", "pytorch", "result", "report"), rows, title=counted(len(results), "variant"))


def print_report(report: ValidationReport, path: Path, *, details: bool) -> None:
    """Print the result in one line, after the tables of the report if ``details`` are wanted; ``path`` is its file."""
    from channel_tools.validate import report_tables, result_line

    for table in report_tables(report) if details else ():
        print_table(table.columns, table.rows, title=table.title)
        print_line("")
    verdict = "FAILED" if report.failed_checks else "PASSED"
    print_outcome(verdict, result_line(report, path).removeprefix(f"{verdict} "))
