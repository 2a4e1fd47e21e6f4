# SPDX-License-Identifier: BSD-3-Clause
"""All that goes into a bundle, known by size and hash before anything is fetched or signed."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.errors import ChannelError, UsageError
from channel_tools.locks import exclusive_lock
from channel_tools.mirror.locking import encode_lock, lock_path
from channel_tools.mirror.model import channel_path
from channel_tools.mirror.subset import channeldata, derived_index, plain_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from channel_tools.mirror.fetch import WantedFile
    from channel_tools.mirror.model import Received, ToolWheels
    from channel_tools.mirror.plan import PackagePlan
    from channel_tools.pins import Lock

_UNFINISHED = ".unfinished"


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraFile:
    """A file that goes into a bundle from this machine, with its hash."""

    path: str
    file: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleRequest:
    """All that is known of a bundle before anything is fetched.

    ``small`` are files made here, by path (indexes, locks, the bootstrap script), ``extras`` files of this machine.
    ``since`` is what the far side has: that is signed for again, but not brought again.
    """

    locks: Sequence[Lock]
    packages: PackagePlan
    small: Mapping[str, bytes]
    extras: Sequence[ExtraFile] = ()
    tool: ToolWheels | None = None
    with_sources: bool = False
    since: Received | None = None

    @property
    def held(self) -> Mapping[str, str]:
        """What the far side has, by path to sha256."""
        return {} if self.since is None else self.since.files

    @property
    def wanted(self) -> list[WantedFile]:
        """The packages that have to be brought."""
        return self.packages.wanted

    @property
    def brought(self) -> list[ExtraFile]:
        """The other files of this machine that have to be brought."""
        return [extra for extra in self.extras if self.held.get(extra.path) != extra.sha256]

    @property
    def size_bytes(self) -> int:
        """How large the bundle will be, metadata left out."""
        files = [*(item.size_bytes for item in self.wanted), *(extra.size_bytes for extra in self.brought)]
        return sum(files) + sum(map(len, self.small.values()))

    def brings_nothing(self) -> bool:
        """Whether the far side has all of it already, byte for byte."""
        if self.since is None or self.wanted or self.brought:
            return False
        return all(self.held.get(path) == sha256_of(content) for path, content in self.small.items())


def index_files(locks: Sequence[Lock], packages: PackagePlan, *, complete: bool, now: datetime) -> dict[str, bytes]:
    """The indexes and locks of a bundle by path; with ``complete`` its channels can be read as they stand there."""
    made: dict[str, bytes] = {lock_path(lock.stack): encode_lock(lock) for lock in locks}
    for part in packages.parts:
        name = part.channel.name
        for subdir, records in part.records.items():
            found = plain_index(subdir, records)
            if complete:
                found |= derived_index(subdir, records, found, now_s=now.timestamp())
            made |= {channel_path(name, f"{subdir}/{file_name}"): content for file_name, content in found.items()}
        if complete:
            made |= {channel_path(name, file_name): data for file_name, data in channeldata(part.records).items()}
    return made


def sha256_of(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def check_destination(destination: Path) -> None:
    """Raise UsageError when something is there already; what a run that was killed at its end left beside it goes."""
    if destination.exists():
        _remove_leftovers(unfinished_folder(destination))
        hint = "choose another place; channel_tools mirror update makes a bundle of what is new"
        raise UsageError(f"{destination}: exists already; bundles are never overwritten", hint=hint)


def _remove_leftovers(folder: Path) -> None:
    """Unless somebody is at work there, or may not remove it."""
    lock_file = unfinished_lock(folder)
    if lock_file.exists() or folder.exists():
        with (
            contextlib.suppress(ChannelError, OSError),
            exclusive_lock(lock_file, what=f"the unfinished bundle {folder}"),
        ):
            shutil.rmtree(folder, ignore_errors=True)
            remove_lock(lock_file)


def unfinished_lock(folder: Path) -> Path:
    """The lock of who makes a bundle in the unfinished ``folder``."""
    return folder.with_name(folder.name + ".lock")


def remove_lock(lock_file: Path) -> None:
    """Remove a lock's files when nobody needs them any more."""
    for leftover in (lock_file, lock_file.with_name(lock_file.name + ".owner")):
        leftover.unlink(missing_ok=True)


def unfinished_folder(destination: Path) -> Path:
    """Where the files of a bundle lie while it is made; the caller may put files there before."""
    return destination.with_name(f".{destination.name}{_UNFINISHED}")
