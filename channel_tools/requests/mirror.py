# SPDX-License-Identifier: BSD-3-Clause
"""What ``mirror create`` and ``mirror update`` are asked for."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.pins.choice import LockChoice

_PYTHON = re.compile(r"3\.\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorRequest:
    """What to mirror: stacks, what MatchSpecs ask for, or the packages of locks; these two need no tree.

    ``since`` says what the importing site has. ``channels`` are in order of priority, ours first.

    Raises UsageError for options that are not valid or contradict each other.
    """

    since: Path | None = None
    destination: Annotated[Path, Option("--to", metavar="DIR|FILE.tar", help="The bundle to write.")]
    specs: Annotated[
        tuple[str, ...],
        Argument(metavar="[SPEC]...", help="Mirror what these MatchSpecs ask for, instead of a stack."),
    ] = ()
    stacks: Annotated[
        tuple[str, ...],
        Option("--variant", "-V", help="A stack; may be repeated.", show_default="the default stack"),
    ] = ()
    python: options.Python = None
    pytorch: options.Pytorch = None
    platforms: Annotated[
        tuple[str, ...],
        Option("--platform", help="For this platform; may be repeated.", show_default="this machine's, or the lock's"),
    ] = ()
    channels: Annotated[
        tuple[str, ...],
        options.channels_option(
            "Mirror from this address or folder, our own channel first; may be repeated.",
            "the local channel and its foundation",
        ),
    ] = ()
    virtual_packages: options.VirtualPackages = ()
    locks: Annotated[
        tuple[Path, ...],
        Option(
            "--lock",
            metavar="FILE",
            help="Mirror the packages of this lock (conda-lock.yml, an explicit list, pixi.lock) or environment.yml, "
            "which is solved; may be repeated.",
            show_default="locked now",
        ),
    ] = ()
    categories: options.Categories = ()
    environment: options.LockEnvironment = None
    with_sources: Annotated[
        bool,
        Option("--with-sources", help="Include recipes, sources and build tools: everything that a rebuild needs."),
    ] = False
    tool_pythons: Annotated[
        tuple[str, ...],
        Option(
            "--tool-python",
            metavar="3.N",
            help="Include channel_tools for this Python of the importing site; may be repeated.",
            show_default="the version that runs here",
        ),
    ] = ()
    without_tool: Annotated[bool, Option("--without-tool", help="Do not include channel_tools.")] = False
    jobs: Annotated[int, Option("--jobs", "-j", min=1, help="Downloads at once.")] = 8
    keys: options.MirrorKeys = None
    passphrase_file: options.PassphraseFile = None
    expires_days: Annotated[
        int | None,
        Option("--expires-days", min=1, help="For how many days it may be imported.", show_default="the keys' own"),
    ] = None
    dry_run: options.DryRun = False

    def __post_init__(self) -> None:
        if self.locks and (self.python or self.pytorch):
            message = "--python or --pytorch with --lock: a lock already determines them"
            raise UsageError(
                message, hint="make a lock for them first: channel_tools pins --python 3.N --pytorch N.N -o FOLDER"
            )
        if self.specs and (self.stacks or self.python or self.pytorch or self.locks or self.with_sources):
            message = "MatchSpecs with --variant, --python, --pytorch, --lock or --with-sources: only one of these fits"
            raise UsageError(message, hint="name Python and PyTorch among the MatchSpecs: 'python 3.13.*'")
        if not self.without_tool and (wrong := [text for text in self.tool_pythons if not _PYTHON.fullmatch(text)]):
            raise UsageError(f"--tool-python {wrong[0]}: expected a version like 3.{sys.version_info.minor}")
        self.choice  # noqa: B018 - for its errors

    @property
    def choice(self) -> LockChoice:
        """The part of the locks that is meant. Raises UsageError as lock_choice does."""
        from channel_tools.pins.choice import lock_choice

        return lock_choice(self.platforms, self.categories, self.environment, has_lock=bool(self.locks))

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons for which this program is included."""
        if self.without_tool:
            return ()
        return self.tool_pythons or (f"{sys.version_info.major}.{sys.version_info.minor}",)


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorUpdateRequest(MirrorRequest):
    """What ``mirror update`` is asked for."""

    since: Annotated[
        Path,
        Option(
            "--since", metavar="FILE|BUNDLE", help="What the importing site has: its received.json, or its last bundle."
        ),
    ]
