# SPDX-License-Identifier: BSD-3-Clause
"""What ``validate`` is asked for: the stack, the run, and the scheduler's job that it is to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from channel_tools.requests.environment import InstallRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SchedulerName = Literal["slurm", "pbs"]
_DEFAULT_NODES, _DEFAULT_RANKS = 2, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """The job of a scheduler that a validation is run as; with neither ``on`` nor ``emit`` it is run on this machine.

    ``on`` submits it, or with ``job`` runs on the nodes of the job that this is in; ``emit`` writes its script, to the
    file ``to`` (None: stdout). ``time`` is its limit, HH:MM:SS; None means twenty minutes plus the run for each
    variant, at least half an hour. ``local_scratch`` is a folder on each node's own disk to install into, which may
    have variables in it. ``submit_options`` are options of sbatch or qsub.

    Raises UsageError for options that contradict each other.
    """

    on: Literal["slurm", "pbs", "job"] | None = None
    emit: SchedulerName | None = None
    to: Path | None = None
    nodes: int | None = None
    ranks_per_node: int | None = None
    time: str | None = None
    local_scratch: str | None = None
    submit_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.on is not None and self.emit is not None:
            message = "--on runs the validation, --emit only writes a script"
            raise UsageError(message, hint="leave one of the two out")
        if self.to is not None and self.emit is None:
            raise UsageError("-o without --emit: it names the file of --emit", hint="give --emit slurm or pbs as well")
        if not self.is_asked:
            of_jobs = {
                "--nodes": self.nodes, "--ranks-per-node": self.ranks_per_node, "--time": self.time,
                "--submit-option": self.submit_options or None, "--local-scratch": self.local_scratch,
            }  # fmt: skip
            for name, value in of_jobs.items():
                if value is not None:
                    raise UsageError(f"{name} is only for jobs", hint="give --on slurm or pbs as well")

    @property
    def is_asked(self) -> bool:
        """Whether it is a job at all."""
        return self.on is not None or self.emit is not None

    @property
    def scheduler(self) -> SchedulerName | None:
        """The scheduler that the job is submitted to or written for; None on this machine, and within a job."""
        return self.emit or (None if self.on == "job" else self.on)

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return self.nodes or _DEFAULT_NODES

    @property
    def ranks_on_each(self) -> int:
        """The number of ranks on each node."""
        return self.ranks_per_node or _DEFAULT_RANKS


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidateRequest:
    """What to validate, and how.

    The stack of ``install`` is validated with ``ranks`` processes (None: two), or in every variant that the channel has
    with ``all_variants``, each in a new environment that is removed afterwards unless ``keep``; or in the environment
    ``prefix``, into which nothing is installed with ``as_installed``. ``timeout_s`` is the limit for the run after the
    installation, None for the default. With ``history``, the report is compared with earlier ones and kept; a bandwidth
    that has dropped by more than the noise is an error with ``fail_on_drop``. The result is printed with the report's
    tables (``details``), or ``as_json``.

    Raises UsageError for options that contradict each other.
    """

    install: InstallRequest = field(default_factory=InstallRequest)
    all_variants: bool = False
    prefix: Path | None = None
    as_installed: bool = False
    keep: bool = False
    ranks: int | None = None
    timeout_s: float | None = None
    history: bool = False
    fail_on_drop: bool = False
    details: bool = False
    as_json: bool = False
    job: JobRequest = field(default_factory=JobRequest)

    def __post_init__(self) -> None:
        install = self.install
        if self.fail_on_drop and not self.history:
            raise UsageError("--fail-on-drop without --history: nothing to compare with", hint="give --history as well")
        if self.details and self.as_json:
            raise UsageError("--details prints tables, --json prints only JSON", hint="leave one of the two out")
        if self.all_variants and (install.channels or install.python or install.pytorch or self.prefix):
            message = "--all-variants validates the local channel's variants, each in a new environment"
            hint = "leave out --channel, --python, --pytorch and --prefix, or leave out --all-variants"
            raise UsageError(message, hint=hint)
        if self.as_installed and self.prefix is None:
            message = "--as-installed without --prefix: there is no environment yet"
            raise UsageError(message, hint="name one with --prefix, or leave --as-installed out")
        if self.as_installed and (install.channels or install.python or install.pytorch):
            message = "--as-installed installs nothing, --channel, --python and --pytorch say what is installed"
            raise UsageError(message, hint="leave these out, or --as-installed")
        if self.job.local_scratch is not None and self.prefix is not None:
            message = "--local-scratch installs into a new folder on each node, --prefix names an existing one"
            raise UsageError(message, hint="leave one of the two out")
        if self.job.is_asked and self.ranks is not None:
            message = "--ranks is for this machine; a job has --nodes times --ranks-per-node ranks"
            raise UsageError(message, hint="give these two instead")

    @property
    def rank_count(self) -> int:
        """The number of ranks, on all nodes of a job."""
        if self.job.is_asked:
            return self.job.node_count * self.job.ranks_on_each
        return self.ranks or _DEFAULT_RANKS

    def words(self) -> Iterator[str]:
        """The options that the command within the job has as well; not the stack, the ranks, and what is submitted."""
        install = self.install
        for channel in install.channels:
            yield from ("--channel", channel)
        for name, version in (("--python", install.python), ("--pytorch", install.pytorch)):
            if version is not None:
                yield from (name, version)
        if self.prefix is not None:
            yield from ("--prefix", str(self.prefix))
        if self.timeout_s is not None:
            yield from ("--timeout", str(self.timeout_s))
        flags = {
            "--all-variants": self.all_variants, "--as-installed": self.as_installed,
            "--keep": self.keep, "--history": self.history, "--fail-on-drop": self.fail_on_drop,
            "--details": self.details, "--json": self.as_json,
        }  # fmt: skip
        yield from (flag for flag, is_set in flags.items() if is_set)
        if self.job.local_scratch:
            yield from ("--local-scratch", self.job.local_scratch)
