# SPDX-License-Identifier: BSD-3-Clause
"""What ``mirror create`` and ``mirror update`` are asked for."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.pins.choice import LockChoice

_PYTHON = re.compile(r"3\.\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class MirrorRequest:
    """What to mirror to ``destination``: stacks (empty: the default one) for ``platforms`` (empty: this one).

    ``python`` and ``pytorch`` choose among their variants as in InstallRequest. ``specs`` are MatchSpecs to mirror what
    they ask for, instead of stacks; these and locks need no tree.

    ``channels`` are addresses or folders in order of priority, ours first (empty: the local channel and its foundation;
    without a tree, those of the locks). ``virtual_packages`` are assumed as ``[PLATFORM:]NAME=VERSION``. With
    ``locks``, these files determine what is mirrored, and only an environment.yml is solved; ``platforms``,
    ``categories`` and ``environment`` say which part of them is meant (LockChoice).

    ``since`` is a received.json or the last bundle, which say what the importing site has. ``with_sources``
    includes what a rebuild needs; this program for the Pythons ``tool_pythons`` (empty: the one that runs here) is
    included, unless ``without_tool``. ``limit_rate`` is in bytes per second, of all downloads together. The bundle is
    signed with the keys in the folder ``keys`` (None: the user's), encrypted with the first line of
    ``passphrase_file``, for ``expires_days`` (None: as the folder says).

    Raises UsageError for options that are not valid or contradict each other.
    """

    destination: Path
    specs: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()
    python: str | None = None
    pytorch: str | None = None
    platforms: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    virtual_packages: tuple[str, ...] = ()
    locks: tuple[Path, ...] = ()
    categories: tuple[str, ...] = ()
    environment: str | None = None
    since: Path | None = None
    with_sources: bool = False
    tool_pythons: tuple[str, ...] = ()
    without_tool: bool = False
    jobs: int = 8
    limit_rate: int | None = None
    keys: Path | None = None
    passphrase_file: Path | None = None
    expires_days: int | None = None
    dry_run: bool = False

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
        from channel_tools.pins.choice import lock_choice  # noqa: PLC0415 - slow to import

        return lock_choice(self.platforms, self.categories, self.environment, has_lock=bool(self.locks))

    @property
    def pythons(self) -> tuple[str, ...]:
        """The Pythons for which this program is included."""
        if self.without_tool:
            return ()
        return self.tool_pythons or (f"{sys.version_info.major}.{sys.version_info.minor}",)
