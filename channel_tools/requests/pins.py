# SPDX-License-Identifier: BSD-3-Clause
"""What ``pins`` is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.names import FormatName
from channel_tools.system.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class PinRequest:
    """What to pin, and how.

    Without ``update`` an earlier lock is kept if possible; with it, ``packages`` and their dependencies are solved
    again, all if none is named. Empty ``platforms`` and ``published`` mean those of the earlier lock, else this
    machine's and none.

    Raises UsageError for options that contradict each other.
    """

    packages: Annotated[
        tuple[str, ...],
        Argument(metavar="[PACKAGE]...", help="With --update: the packages that may change.", show_default=False),
    ] = ()
    install: InstallRequest = field(default_factory=InstallRequest)
    platforms: Annotated[
        tuple[str, ...],
        Option(
            "--platform",
            "-p",
            help="Lock for this platform; may be repeated.",
            show_default="the lock's, else this one",
        ),
    ] = ()
    formats: Annotated[
        tuple[FormatName, ...],
        Option(
            "--format",
            "-f",
            help="Write this format in addition to conda-lock.yml, which is always written; may be repeated.",
            show_default="all",
        ),
    ] = ()
    folder: Annotated[
        Path | None, Option("-o", help="The folder for the files.", show_default="TREE/output/pins/STACK")
    ] = None
    published: Annotated[
        tuple[str, ...],
        Option(
            "--published",
            help="Write this address in place of a local channel's path; once for each local channel, in their order.",
            show_default=False,
        ),
    ] = ()
    offline: Annotated[
        bool, Option("--offline", help="With --published: do not check that the packages are there.")
    ] = False
    virtual_packages: options.VirtualPackages = ()
    update: Annotated[bool, Option("--update", help="Look for newer packages: those given as arguments, else all.")] = (
        False
    )
    dry_run: options.DryRun = False

    def __post_init__(self) -> None:
        if self.packages and not self.update:
            message = f"{' '.join(self.packages)}: package names need --update"
            raise UsageError(message, hint="add --update, or give --variant STACK")
