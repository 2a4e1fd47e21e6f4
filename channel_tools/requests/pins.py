# SPDX-License-Identifier: BSD-3-Clause
"""What ``pins`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from channel_tools.requests.environment import InstallRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.files import PinFormat


@dataclass(frozen=True, kw_only=True, slots=True)
class PinRequest:
    """What to pin, and how.

    ``formats`` are written besides conda-lock.yml; none of them, or ``all``, means all. Without ``update`` an earlier
    lock is kept if possible; with it, ``packages`` and their dependencies are solved again, all if none is named. Empty
    ``platforms`` and ``published`` mean those of the earlier lock, else this machine's and none. ``folder`` None means
    ``output/pins/STACK``. ``offline`` skips the check of the ``published`` channels.

    Raises UsageError for options that contradict each other.
    """

    install: InstallRequest = field(default_factory=InstallRequest)
    packages: tuple[str, ...] = ()
    update: bool = False
    formats: tuple[PinFormat | Literal["all"], ...] = ()
    platforms: tuple[str, ...] = ()
    folder: Path | None = None
    published: tuple[str, ...] = ()
    virtual_packages: tuple[str, ...] = ()
    offline: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.packages and not self.update:
            message = f"{' '.join(self.packages)}: package names need --update"
            raise UsageError(message, hint="add --update, or give --variant STACK")
