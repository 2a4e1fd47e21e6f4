# SPDX-License-Identifier: BSD-3-Clause
"""What ``sbom`` and ``licenses`` are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.requests.environment import InstallRequest
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.pins.choice import LockChoice


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedStack(InstallRequest):
    """A stack, in the variant that a lock or the local channel has of it."""

    channels: Annotated[
        tuple[str, ...],
        options.channels_option("A channel's folder with the packages; may be repeated.", "where the lock says"),
    ] = ()
    python: str | None = None
    pytorch: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class InventoryRequest:
    """The packages to list: of a package file or a lock (``target``), else those of a stack.

    Raises UsageError for options that contradict each other.
    """

    target: Annotated[
        Path | None,
        Argument(
            help="A .conda file, a lock (conda-lock.yml, explicit list, pixi.lock) or an environment.yml.",
            show_default="a stack",
        ),
    ] = None
    install: InstallRequest = field(default_factory=ListedStack)
    platform: Annotated[
        str | None,
        Option("--platform", help="The platform, for a lock of several platforms.", show_default="this machine's"),
    ] = None
    categories: options.Categories = ()
    environment: options.LockEnvironment = None

    def __post_init__(self) -> None:
        self.choice  # noqa: B018 - for its errors
        if self.target is not None and self.install.stack is not None:
            message = "a path and --variant together: only one can be listed"
            raise UsageError(message, hint="give one of the two")

    @property
    def choice(self) -> LockChoice:
        """The part of the lock that is meant. Raises UsageError as lock_choice does."""
        from channel_tools.pins.choice import lock_choice

        platforms = [] if self.platform is None else [self.platform]
        return lock_choice(platforms, self.categories, self.environment, has_lock=self.target is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentRequest(InventoryRequest):
    """The same for a bill of materials, which is written to ``file`` (None: stdout)."""

    file: Annotated[
        Path | None, Option("--output-file", "-o", help="The file to write.", show_default="standard output")
    ] = None
