# SPDX-License-Identifier: BSD-3-Clause
"""What ``sbom`` and ``licenses`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from channel_tools.requests.environment import InstallRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.choice import LockChoice

DocumentFormat = Literal["cyclonedx", "spdx"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryRequest:
    """The packages to list: a package file or a lock (``target``), else those of the stack of ``install``.

    ``platform``, ``categories`` and ``environment`` say which part of a lock is meant (LockChoice). The packages are
    read from ``install.channels``; empty means the lock's, or the local channel. A bill of materials is written in the
    format ``kind`` to ``file`` (None: stdout).

    Raises UsageError for options that contradict each other.
    """

    target: Path | None = None
    install: InstallRequest = field(default_factory=InstallRequest)
    platform: str | None = None
    categories: tuple[str, ...] = ()
    environment: str | None = None
    kind: DocumentFormat = "cyclonedx"
    file: Path | None = None

    def __post_init__(self) -> None:
        self.choice  # noqa: B018 - for its errors
        if self.target is not None and self.install.stack is not None:
            message = "a path and --variant together: only one can be listed"
            raise UsageError(message, hint="give one of the two")

    @property
    def choice(self) -> LockChoice:
        """The part of the lock that is meant. Raises UsageError as lock_choice does."""
        from channel_tools.pins.choice import lock_choice  # noqa: PLC0415 - slow to import

        platforms = [] if self.platform is None else [self.platform]
        return lock_choice(platforms, self.categories, self.environment, has_lock=self.target is not None)
