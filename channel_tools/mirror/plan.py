# SPDX-License-Identifier: BSD-3-Clause
"""What goes into a bundle: from locks and channels to a list of files with their hashes; nothing is fetched yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.addresses import without_credentials
from channel_tools.channel.model import NOARCH, PACKAGE_SUFFIX
from channel_tools.errors import IntegrityError, UsageError
from channel_tools.mirror.fetch import WantedFile
from channel_tools.mirror.model import CHANNELS_FOLDER, BundleFile, channel_path, is_safe_path
from channel_tools.mirror.upstream import SubdirRecords, read_records

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from channel_tools.mirror.http import HttpReader
    from channel_tools.mirror.model import Received
    from channel_tools.pins import Lock

OLD_SUFFIX = ".tar.bz2"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceChannel:
    """A channel that is mirrored: its folder in the bundle, its address with any credentials, whether it is ours."""

    name: str
    address: str
    own: bool

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return without_credentials(self.address).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class NeededPackage:
    """A package that has to be on the far side, by the channel that has it (without credentials)."""

    channel: str
    subdir: str
    file_name: str
    sha256: str
    size_bytes: int

    @property
    def key(self) -> str:
        """``subdir/file name``."""
        return f"{self.subdir}/{self.file_name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelPart:
    """What of a channel goes into a bundle.

    ``packages`` are wanted files by ``subdir/file name``, ``records`` by subdir. ``removed`` are packages whose files
    the far side has or gets for its lock files, and that no new solve may see.
    """

    channel: SourceChannel
    packages: Mapping[str, WantedFile]
    records: Mapping[str, SubdirRecords]
    removed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagePlan:
    """The packages of a bundle, and what of them the far side has already (target paths)."""

    parts: tuple[ChannelPart, ...]
    omitted: frozenset[str]

    @property
    def wanted(self) -> list[WantedFile]:
        """What has to be in the bundle."""
        return [item for part in self.parts for item in part.packages.values() if item.path not in self.omitted]

    @property
    def files(self) -> list[BundleFile]:
        """All packages that the far side has afterwards."""
        return [
            BundleFile(path=item.path, size_bytes=item.size_bytes, sha256=item.sha256)
            for part in self.parts
            for item in part.packages.values()
        ]


def locked_packages(locks: Sequence[Lock]) -> list[NeededPackage]:
    """All packages of the locks, each once, in order."""
    found = {
        NeededPackage(
            channel=package.channel.rstrip("/"),
            subdir=package.subdir,
            file_name=package.file_name,
            sha256=package.sha256,
            size_bytes=package.size_bytes,
        )
        for lock in locks
        for platform in lock.platforms
        for package in platform.packages
    }
    return sorted(found)


def plan_packages(
    needed: Sequence[NeededPackage],
    channels: Sequence[SourceChannel],
    *,
    platforms: Collection[str],
    reader: HttpReader,
    since: Received | None = None,
) -> PackagePlan:
    """The packages needed from the channels, and what the far side keeps of what it has (``since``).

    Raises UsageError for a lock with packages of another channel, IntegrityError when a channel lists other bytes than
    were locked, ChannelError and NetworkError for channels that cannot be read.
    """
    known = {channel.shown for channel in channels}
    for package in needed:
        if package.channel not in known:
            message = f"{package.file_name} is locked from {package.channel}, which is none of the channels mirrored"
            raise UsageError(message, hint=f"add --channel {package.channel}, or lock again from the channels given")
    parts = []
    for channel in channels:
        mine = [package for package in needed if package.channel == channel.shown]
        parts.append(_plan_channel(channel, mine, [NOARCH, *platforms], _held(channel, since), reader))
    held = {} if since is None else since.files
    omitted = {item.path for part in parts for item in part.packages.values() if held.get(item.path) == item.sha256}
    return PackagePlan(parts=tuple(parts), omitted=frozenset(omitted))


def _held(channel: SourceChannel, since: Received | None) -> dict[str, str]:
    """Packages of the channel that the far side has: ``subdir/file name`` to sha256."""
    prefix = f"{CHANNELS_FOLDER}/{channel.name}/"
    files = {} if since is None else since.files
    return {
        path.removeprefix(prefix): sha256
        for path, sha256 in files.items()
        if path.startswith(prefix) and path.endswith((PACKAGE_SUFFIX, OLD_SUFFIX))
    }


def _plan_channel(
    channel: SourceChannel,
    needed: Sequence[NeededPackage],
    subdirs: Sequence[str],
    held: Mapping[str, str],
    reader: HttpReader,
) -> ChannelPart:
    wanted = {package.key: package for package in needed}
    names = sorted({*wanted, *held})
    all_subdirs = sorted({*subdirs, *(name.partition("/")[0] for name in names)})
    records = {
        subdir: read_records(channel.address, subdir, _names_in(subdir, names), reader) for subdir in all_subdirs
    }
    packages: dict[str, WantedFile] = {}
    removed: list[str] = []
    for key in names:
        subdir, _, file_name = key.partition("/")
        record = records[subdir].get(file_name)
        if record is None:
            removed.append(key)
        if key in wanted:
            packages[key] = _of_lock(channel, wanted[key], record)
        elif record is not None and record.get("sha256") == held[key]:
            packages[key] = _wanted(channel, key, held[key], record.get("size"))
    return ChannelPart(channel=channel, packages=packages, records=records, removed=tuple(removed))


def _names_in(subdir: str, keys: Sequence[str]) -> set[str]:
    return {key.partition("/")[2] for key in keys if key.startswith(subdir + "/")}


def _of_lock(channel: SourceChannel, package: NeededPackage, record: Mapping[str, object] | None) -> WantedFile:
    if record is not None and record.get("sha256") != package.sha256:
        message = (
            f"{channel.shown}/{package.key}: the channel lists other bytes "
            f"(sha256 {record.get('sha256')}) than were locked ({package.sha256})"
        )
        raise IntegrityError(message, hint="published files never change: find out who changed it, then lock again")
    size_bytes: object = package.size_bytes
    if not size_bytes:  # the lock's format does not hold it
        size_bytes = None if record is None else record.get("size")
    return _wanted(channel, package.key, package.sha256, size_bytes)


def _wanted(channel: SourceChannel, key: str, sha256: str, size_bytes: object) -> WantedFile:
    path = channel_path(channel.name, key)
    if not isinstance(size_bytes, int) or not is_safe_path(path):
        message = f"{channel.shown}/{key}: the index gives it no size, or a name that no bundle can hold"
        raise IntegrityError(message, hint="index the channel again")
    return WantedFile(path=path, size_bytes=size_bytes, sha256=sha256, url=f"{channel.address.rstrip('/')}/{key}")
