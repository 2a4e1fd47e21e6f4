# SPDX-License-Identifier: BSD-3-Clause
"""What ``launch`` is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.names import LauncherName, SchedulerName
from channel_tools.system.errors import UsageError

_RANKS_AT_MOST = 100_000
_NETWORK = re.compile(r"[A-Za-z0-9_=]+(,[A-Za-z0-9_=]+)*")
_DEFAULT_NODES, _DEFAULT_TIME = 1, "01:00:00"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptRequest:
    """A script, with its arguments, and where its ranks run; ``folder`` is the folder that it is run in.

    Raises UsageError for options that contradict each other.
    """

    words: Annotated[
        tuple[str, ...], Argument(metavar="SCRIPT [ARGS]...", help="The Python script and its own arguments.")
    ]
    stack: Annotated[str | None, options.stack_option("that of the environment")] = None
    ranks: Annotated[int, Option("--ranks", "-r", min=1, max=_RANKS_AT_MOST, help="Processes in all.")] = 2
    hosts_file: Annotated[
        Path | None,
        Option(
            "--hosts",
            help="A file with a host per line: NAME or NAME:RANKS.",
            show_default="the job's, else this machine",
        ),
    ] = None
    prefix: Annotated[
        Path | None, Option(help="The environment, at the same path on each host.", show_default="the active one")
    ] = None
    image: Annotated[Path | None, Option("--image", metavar="FILE", help="Run in this image of env image.")] = None
    local_scratch: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="With --image, where it cannot be mounted, and in a job of several nodes: unpack it into this folder "
            "of each node's own disk, such as /local or '$TMPDIR'.",
            show_default=False,
        ),
    ] = None
    launcher: Annotated[
        LauncherName | None,
        Option(help="The program that starts the ranks.", show_default="srun in a Slurm job, else the stack's"),
    ] = None
    switch: Annotated[
        bool, Option("--switch", help="Start a software switch and go through it, also on one host, to try it.")
    ] = False
    network: Annotated[
        str | None,
        Option(
            metavar="WORDS",
            help="Ask Slurm for this of the network, as its own --network: disable_rdzv_get, single_node_vni.",
            show_default="what the environment's fabric-profile wants, in a job script",
        ),
    ] = None
    watch: Annotated[
        int | None,
        Option(
            min=1,
            metavar="SECONDS",
            help="Report where each rank stands if none moves for so long, and which ranks wait for which.",
            show_default=False,
        ),
    ] = None
    watch_end: Annotated[bool, Option("--watch-end", help="With --watch: end the job after that report.")] = False
    dry_run: options.DryRun = False
    emit: Annotated[
        SchedulerName | None, Option(help="Write a job script instead of running it.", show_default=False)
    ] = None
    to: Annotated[Path | None, Option("-o", help="The job script's file.", show_default="stdout")] = None
    nodes: Annotated[
        int | None, Option(min=1, max=_RANKS_AT_MOST, help="The nodes of the job script.", show_default="1")
    ] = None
    time: Annotated[str | None, Option(help="The time limit of the job script, HH:MM:SS.", show_default="01:00:00")] = (
        None
    )
    folder: Path = field(default_factory=Path.cwd)

    def __post_init__(self) -> None:
        if self.image is not None and (self.prefix or self.hosts_file or self.emit):
            message = "--image with --prefix, --hosts or --emit: it says itself what runs, here or in this job"
            raise UsageError(message, hint="leave these out, or mount it on each host by the site's own means")
        if self.image is None and self.local_scratch is not None:
            raise UsageError("--local-scratch without --image: nothing to unpack", hint="give both")
        if self.network is not None and not _NETWORK.fullmatch(self.network):
            message = f"--network: found {self.network!r}, expected words of Slurm, joined by commas"
            raise UsageError(message, hint="for example --network disable_rdzv_get; see man srun")
        if self.network is not None and self.emit not in {None, "slurm"}:
            message = f"--network with --emit {self.emit}: it is an option of Slurm"
            raise UsageError(message, hint="leave it out, and ask your site how its scheduler gives a job a VNI")
        if self.watch_end and self.watch is None:
            raise UsageError("--watch-end without --watch: no report to end the job after", hint="give --watch SECONDS")
        if self.watch is not None and self.dry_run:
            message = "--watch and --dry-run together: the watch runs beside the ranks, and no command shows it"
            raise UsageError(message, hint="leave one of the two out")
        if self.emit is None:
            of_jobs = {"-o": self.to, "--nodes": self.nodes, "--time": self.time}
            for name, value in of_jobs.items():
                if value is not None:
                    message = f"{name} without --emit: it is for a job script, and none is written"
                    raise UsageError(message, hint="give --emit slurm or pbs as well")
        elif self.hosts_file is not None:
            message = "--hosts and --emit together: the scheduler chooses a job's hosts"
            raise UsageError(message, hint="leave --hosts out")
        elif self.dry_run:
            message = "--dry-run and --emit together: one shows the commands, the other writes a job script"
            raise UsageError(message, hint="leave one of the two out; without -o the job script is only shown")

    @property
    def node_count(self) -> int:
        """The nodes of the job script."""
        return self.nodes or _DEFAULT_NODES

    @property
    def time_limit(self) -> str:
        """The time limit of the job script, HH:MM:SS."""
        return self.time or _DEFAULT_TIME
