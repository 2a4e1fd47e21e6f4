# SPDX-License-Identifier: BSD-3-Clause
"""What ``launch`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.requests.validate import SchedulerName

LauncherName = Literal["torchrun", "mpiexec", "srun"]
_DEFAULT_NODES, _DEFAULT_TIME = 1, "01:00:00"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptRequest:
    """A script (``words``: with its arguments) and where its ranks run; None means the default.

    That is the stack of the environment; the hosts of a scheduler's job, else this machine; the active environment; the
    launcher by stack and place. ``folder`` is the folder that the script is run in. With ``emit``, a job script for
    ``nodes`` (one) and ``time`` (HH:MM:SS, an hour) is written to the file ``to`` (stdout) instead.

    Raises UsageError for options that contradict each other.
    """

    words: tuple[str, ...]
    stack: str | None = None
    ranks: int = 2
    hosts_file: Path | None = None
    prefix: Path | None = None
    launcher: LauncherName | None = None
    dry_run: bool = False
    emit: SchedulerName | None = None
    to: Path | None = None
    nodes: int | None = None
    time: str | None = None
    folder: Path = field(default_factory=Path.cwd)

    def __post_init__(self) -> None:
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
