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


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptRequest:
    """A script (``words``: with its arguments) and where its ranks run; None means the default.

    That is the stack of the environment; the hosts of a scheduler's job, else this machine; the active environment; the
    launcher by stack and place. ``folder`` is the folder that the script is run in. With ``emit``, a job script for
    ``nodes`` and ``time`` (HH:MM:SS) is written to the file ``to`` (None: stdout) instead.

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
    nodes: int = 1
    time: str = "01:00:00"
    folder: Path = field(default_factory=Path.cwd)

    def __post_init__(self) -> None:
        if self.emit is not None and self.hosts_file is not None:
            message = "--hosts and --emit together: the scheduler chooses a job's hosts"
            raise UsageError(message, hint="leave --hosts out")
