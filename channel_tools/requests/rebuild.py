# SPDX-License-Identifier: BSD-3-Clause
"""What ``rebuild`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path

if TYPE_CHECKING:
    from channel_tools.system.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildRequest:
    """What to build again, and how it is compared. Raises UsageError for diffoscope without a comparison."""

    package: Annotated[
        str,
        Argument(
            help="The package's file in a channel's folder, or its name or file name in the local channel.",
            show_default=False,
        ),
    ]
    compare: Annotated[
        bool, Option("--compare", help="Show for each file what differs from the published package.")
    ] = False
    diffoscope: Annotated[
        Path | None,
        Option(help="The diffoscope program, for details of differences.", show_default="diffoscope on the PATH"),
    ] = None
    destination: Annotated[
        Path | None, Option("--output-dir", "-o", help="The folder for the new package.", show_default="OUTPUT/rebuilt")
    ] = None
    offline: Annotated[bool, Option("--offline", help="Download nothing: use the source store.")] = False

    def __post_init__(self) -> None:
        if self.diffoscope is not None and not self.compare:
            message = "--diffoscope without --compare: nothing is compared"
            raise UsageError(message, hint="give --compare as well")

    def folder(self, settings: Settings) -> Path:
        """The folder for the new package."""
        return absolute_path(self.destination or settings.output / "rebuilt")
