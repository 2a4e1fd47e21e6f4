# SPDX-License-Identifier: BSD-3-Clause
"""What ``rebuild`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildRequest:
    """What to build again: a package's file in a channel's folder, or its name in the local channel.

    The new package is written to ``destination`` (None: ``output/rebuilt``), below its subdir. With ``compare``, what
    differs is shown for each file, by ``diffoscope`` if it is there (None: on the PATH). With ``offline``, nothing is
    downloaded.

    Raises UsageError for diffoscope without a comparison.
    """

    package: str
    compare: bool = False
    diffoscope: Path | None = None
    destination: Path | None = None
    offline: bool = False

    def __post_init__(self) -> None:
        if self.diffoscope is not None and not self.compare:
            message = "--diffoscope without --compare: nothing is compared"
            raise UsageError(message, hint="give --compare as well")

    def folder(self, settings: Settings) -> Path:
        """The folder for the new package."""
        return (self.destination or settings.output / "rebuilt").absolute()
