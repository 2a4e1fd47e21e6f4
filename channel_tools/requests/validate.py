# SPDX-License-Identifier: BSD-3-Clause
"""What ``validate`` is asked for: the stack, the run, and the scheduler's job that it is to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from channel_tools.requests import options
from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.names import SchedulerName
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS_AT_MOST = 10_000
_NOT_IN_JOB = {"stack", "ranks", "on", "emit", "to", "nodes", "ranks_per_node", "time", "submit_options"}
_DEFAULT_NODES, _DEFAULT_RANKS = 2, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """The job of a scheduler that a validation is run as; with neither ``on`` nor ``emit`` it is run on this machine.

    Raises UsageError for options that contradict each other.
    """

    on: Annotated[
        Literal["slurm", "pbs", "job"] | None,
        Option(help="Run as a job of Slurm or PBS; job: on the nodes of the current job."),
    ] = None
    emit: Annotated[
        SchedulerName | None, Option(help="Write the job script instead of submitting it.", show_default=False)
    ] = None
    to: Annotated[Path | None, Option("-o", help="The job script's file.", show_default="stdout")] = None
    nodes: Annotated[int | None, Option(min=1, max=RANKS_AT_MOST, help="The nodes of the job.", show_default="2")] = (
        None
    )
    ranks_per_node: Annotated[
        int | None, Option(min=1, max=RANKS_AT_MOST, help="Ranks on each node of the job.", show_default="2")
    ] = None
    time: Annotated[
        str | None,
        Option(
            help="The time limit of the job, HH:MM:SS.",
            show_default="20 minutes and --timeout for each variant, at least 00:30:00",
        ),
    ] = None
    local_scratch: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Install on each node's own disk, into this folder, such as /local or '$TMPDIR'; with --image, unpack "
            "it there if it cannot be mounted.",
            show_default="one installation, in a folder that the nodes share",
        ),
    ] = None
    submit_options: Annotated[
        tuple[str, ...],
        Option("--submit-option", help="An option for sbatch or qsub; may be repeated.", show_default=False),
    ] = ()

    def __post_init__(self) -> None:
        if self.on is not None and self.emit is not None:
            message = "--on runs the validation, --emit only writes a script"
            raise UsageError(message, hint="leave one of the two out")
        if self.to is not None and self.emit is None:
            raise UsageError("-o without --emit: it names the file of --emit", hint="give --emit slurm or pbs as well")
        if not self.is_asked:
            of_jobs = {
                "--nodes": self.nodes, "--ranks-per-node": self.ranks_per_node, "--time": self.time,
                "--submit-option": self.submit_options or None,
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
class ValidatedStack(InstallRequest):
    """The stack to validate, and its channels."""

    stack: Annotated[str | None, options.stack_option("that of --prefix, else the default stack")] = None


Ranks = Annotated[
    int | None,
    Option("--ranks", "-r", min=1, max=RANKS_AT_MOST, help="Processes of the allreduce.", show_default="2"),
]
Timeout = Annotated[
    float | None,
    Option("--timeout", min=1, help="Time limit in seconds for the run after installing.", show_default="600"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidateRequest:
    """What to validate, where, and how the result is printed.

    Raises UsageError for options that contradict each other.
    """

    install: InstallRequest = field(default_factory=ValidatedStack)
    all_variants: Annotated[
        bool,
        Option(
            "--all-variants", help="For every Python and PyTorch that the channel has, in turn; also within one job."
        ),
    ] = False
    prefix: Annotated[
        Path | None,
        Option(help="Validate in this environment and keep it.", show_default="a new one, removed afterwards"),
    ] = None
    as_installed: Annotated[
        bool, Option("--as-installed", help="Install nothing into the environment of --prefix; no channel is read.")
    ] = False
    keep: Annotated[bool, Option("--keep", help="Keep the new environment and the logs of the run.")] = False
    timeout_s: Timeout = None
    history: Annotated[bool, Option("--history", help="Keep the report with earlier ones, for the channel's page.")] = (
        False
    )
    image: Annotated[
        Path | None,
        Option("--image", metavar="FILE", help="Validate this image of env image as it is, mounted in a namespace."),
    ] = None
    nccl_tests: Annotated[
        Path | None,
        Option(
            "--nccl-tests",
            metavar="FILE",
            help="Judge the output of nccl-tests or rccl-tests, too, which ran with NCCL_DEBUG=INFO.",
        ),
    ] = None
    details: Annotated[bool, Option("--details", help="Print the report's tables before the line with the result.")] = (
        False
    )
    as_json: options.Json = False
    job: JobRequest = field(default_factory=JobRequest)
    ranks: Ranks = None

    def __post_init__(self) -> None:
        install = self.install
        if self.details and self.as_json:
            raise UsageError("--details prints tables, --json prints only JSON", hint="leave one of the two out")
        if self.all_variants and (install.channels or install.python or install.pytorch or self.prefix):
            message = "--all-variants validates the local channel's variants, each in a new environment"
            hint = "leave out --channel, --python, --pytorch and --prefix, or leave out --all-variants"
            raise UsageError(message, hint=hint)
        if self.all_variants and self.nccl_tests is not None:
            message = "--nccl-tests is the output of one run, --all-variants validates several environments"
            raise UsageError(message, hint="leave one of the two out")
        of_image = install.channels or install.python or install.pytorch or self.prefix or self.all_variants
        if self.image is not None and (of_image or self.job.is_asked):
            message = "--image validates what is in the image on this machine: no --prefix, --channel, --python, --on"
            raise UsageError(message, hint="leave these out")
        if self.job.local_scratch is not None and self.image is None and not self.job.is_asked:
            raise UsageError("--local-scratch is only for jobs and images", hint="give --on slurm, pbs or --image")
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
        return options.words_of(self, omit=_NOT_IN_JOB)
