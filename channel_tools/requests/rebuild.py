# SPDX-License-Identifier: BSD-3-Clause
"""What ``rebuild`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.system.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildRequest:
    """What to build again: a package's file in a channel's folder, or its name in the local channel.

    The new package is written to ``destination`` (None: ``output/rebuilt``), below its subdir. With ``compare``, what
    differs is shown for each file, by ``diffoscope`` if it is there (None: on the PATH). With ``offline``, nothing is
    downloaded.
    """

    package: str
    compare: bool = False
    diffoscope: Path | None = None
    destination: Path | None = None
    offline: bool = False

    def folder(self, settings: Settings) -> Path:
        """The folder for the new package."""
        return (self.destination or settings.output / "rebuilt").absolute()
