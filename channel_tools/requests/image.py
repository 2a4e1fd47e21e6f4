# SPDX-License-Identifier: BSD-3-Clause
"""What ``env image`` and ``export paper`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests.environment import InstallRequest
from channel_tools.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageRequest:
    """The environment, or the stack, to write as an image. Raises UsageError for neither and for both."""

    prefix: Annotated[Path | None, Argument(help="The environment.", show_default="a stack's, by --variant")] = None
    install: InstallRequest = field(default_factory=InstallRequest)
    file: Annotated[Path, Option("-o", metavar="FILE", help="The file to write: NAME.squashfs.")]
    at: Annotated[Path, Option("--at", metavar="FOLDER", help="The folder that it will be mounted at.")] = Path(
        "/user-environment"
    )
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False

    def __post_init__(self) -> None:
        if (self.prefix is None) == (self.install.stack is None):
            message = "an environment and --variant: both say what is in the image"
            if self.prefix is None:
                message = "neither an environment nor --variant: nothing says what is in the image"
            raise UsageError(message, hint="give one of the two")
        if self.prefix is not None and (self.install.names_a_variant or self.install.channels):
            raise UsageError("--channel, --python or --pytorch with an environment: it has them", hint="leave them out")


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperRequest:
    """The environment to describe in a folder, so that it can be made again."""

    prefix: Annotated[Path, Argument(help="The environment.")]
    folder: Annotated[Path, Option("-o", metavar="FOLDER", help="The folder for the files.")]
    report: Annotated[
        Path | None, Option("--report", metavar="FILE", help="Also this report of validate.", show_default=False)
    ] = None
