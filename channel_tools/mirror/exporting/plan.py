# SPDX-License-Identifier: BSD-3-Clause
"""Plans a bundle: from locks and channels to a list of files with sizes and hashes; nothing is fetched yet.

What a bundle has of channels beside their packages: indexes, locks and attestations, whose content is made here.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.addresses import local_path, without_credentials
from channel_tools.conda.fetch import HashedFile, RemoteFile
from channel_tools.conda.index import SubdirRecords, read_index
from channel_tools.conda.package import (
    LIMIT_BYTES,
    NOARCH,
    RECORD_FIELD,
    PackageKey,
    PackageRef,
    hashed_name,
    read_sidecar,
    subdir_beneath,
)
from channel_tools.conda.repodata import CHANNELDATA
from channel_tools.conda.specs import least_version, spec_name, texts_of
from channel_tools.mirror.files import bundle_damaged, open_bundle
from channel_tools.mirror.format import (
    METADATA_FOLDER,
    RECORD_BYTES,
    Received,
    channel_path,
    encode_lock,
    is_safe_path,
    lock_path,
    package_at,
    read_received,
    sha256_of,
)
from channel_tools.mirror.records import channeldata, derived_index, plain_index
from channel_tools.pins import assumed_virtual_packages, solve_lock
from channel_tools.requests.names import BASES
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, IntegrityError, NoPackagesError, SolveError, UsageError
from channel_tools.system.settings import STACKS_PACKAGE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.mirror.format import ToolWheels
    from channel_tools.pins import Lock
    from channel_tools.requests.names import BaseName
    from channel_tools.system.http.client import HttpClient

_log = logging.getLogger(__name__)

ChannelPackage = tuple[str, PackageRef]
"""A package with the address of its channel, without credentials or a trailing slash."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceChannel:
    """A channel to mirror: its folder in the bundle, its address with any credentials, whether it is ours.

    ``base`` is the Debian release that it records of its foundation; None for one that is not in a folder here.
    """

    name: str
    address: str
    own: bool
    base: BaseName | None = None

    @property
    def plain_address(self) -> str:
        """The address without credentials."""
        return without_credentials(self.address).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtraFile(HashedFile):
    """A file for a bundle that is on this machine, at ``file``."""

    file: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelPart:
    """The part of a channel that an importing site has after this bundle.

    ``records`` are the packages' records by subdir. ``removed`` are packages whose files the site has or gets for its
    lock files, but which new solves must not see.
    """

    channel: SourceChannel
    packages: tuple[RemoteFile, ...]
    records: Mapping[str, SubdirRecords]
    removed: tuple[PackageKey, ...]

    @property
    def base(self) -> BaseName | None:
        """The Debian release of its foundation if it is ours: as recorded, else the oldest with the glibc required."""
        if not self.channel.own or self.channel.base is not None:
            return self.channel.base
        rows = (row for records in self.records.values() for row in records.values())
        specs = (spec for row in rows for spec in texts_of(row, "depends") if spec_name(spec) == "__glibc")
        least = max(map(least_version, specs), default=None)
        fitting = (name for name, base in BASES.items() if least and least <= tuple(map(int, base.glibc.split("."))))
        return next(fitting, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class BundlePlan:
    """Everything known about a bundle before anything is fetched.

    ``small`` are files made here, by path (indexes, locks, the bootstrap script), ``extras`` files of this machine.
    ``since`` is what the importing site has: packages and extras in it are signed again, but not included again.
    """

    locks: Sequence[Lock]
    parts: Sequence[ChannelPart]
    small: Mapping[str, bytes]
    extras: Sequence[ExtraFile] = ()
    tool: ToolWheels | None = None
    with_sources: bool = False
    since: Received | None = None

    @property
    def packages(self) -> list[RemoteFile]:
        """All packages that the importing site will have."""
        return [package for part in self.parts for package in part.packages]

    @property
    def new_packages(self) -> list[RemoteFile]:
        """The packages to include in the bundle."""
        return [package for package in self.packages if not self._is_there(package)]

    @property
    def new_extras(self) -> list[ExtraFile]:
        """The other files of this machine to include in the bundle."""
        return [extra for extra in self.extras if not self._is_there(extra)]

    @property
    def omitted(self) -> list[str]:
        """Paths of the bundle that the importing site already has, sorted."""
        return sorted(file.path for file in (*self.packages, *self.extras) if self._is_there(file))

    @property
    def size_bytes(self) -> int:
        """The size of the bundle, without metadata."""
        return sum(file.size_bytes for file in (*self.new_packages, *self.new_extras)) + sum(
            map(len, self.small.values())
        )

    def brings_nothing(self) -> bool:
        """Whether the importing site already has all of it, byte for byte."""
        if self.since is None or self.new_packages or self.new_extras:
            return False
        return all(self.since.files.get(path) == sha256_of(content) for path, content in self.small.items())

    def _is_there(self, file: HashedFile) -> bool:
        return self.since is not None and self.since.files.get(file.path) == file.sha256


def locked_packages(locks: Iterable[Lock]) -> set[ChannelPackage]:
    """All packages of the locks, each once."""
    return {
        (package.channel.rstrip("/"), package.ref)
        for lock in locks
        for platform in lock.platforms
        for package in platform.packages
    }


async def pip_for_conda(locks: Iterable[Lock], channels: Sequence[str], *, package_cache: Path) -> set[ChannelPackage]:
    """pip and its dependencies, solved with the packages of each lock that has Python and no pip.

    conda treats pip as a requirement of Python unless its setting ``add_pip_as_python_dependency`` is off, so it finds
    no solution in a channel that has Python but not pip; rattler, pixi and mamba do not. ``channels`` are addresses in
    order of priority, with any credentials. If none has a compatible pip, a warning says what users of conda have to
    set. Raises what solve_lock does, except SolveError.
    """
    packages: set[ChannelPackage] = set()
    for lock in locks:
        for platform in lock.platforms:
            names = {package.name for package in platform.packages}
            if "python" in names and "pip" not in names:
                only = replace(lock, platforms=(platform,))
                packages |= locked_packages([await _with_pip(only, channels, package_cache)]) - locked_packages([only])
    return packages


async def stacks_package(locks: Sequence[Lock], channels: Sequence[str], *, package_cache: Path) -> set[ChannelPackage]:
    """The package that says what the channels' stacks are, with which the importing site installs them by name.

    Empty if no channel has it. Raises what solve_lock does, except SolveError and NoPackagesError.
    """
    platforms = platforms_of(locks)
    virtual = assumed_virtual_packages(platforms)
    try:
        lock = await solve_lock(
            STACKS_PACKAGE, [STACKS_PACKAGE], channels, platforms, virtual_packages=virtual, package_cache=package_cache
        )
    except (SolveError, NoPackagesError):  # the second where the channels have noarch packages only
        return set()
    return locked_packages([lock])


async def _with_pip(lock: Lock, channels: Sequence[str], package_cache: Path) -> Lock:
    """The lock of one platform solved again with pip; the lock itself if there is no solution."""
    [platform] = lock.platforms
    exact = [f"{package.name} =={package.version} {package.build}" for package in platform.packages]
    virtual = platform.virtual_packages or assumed_virtual_packages([platform.platform])[platform.platform]
    try:
        return await solve_lock(
            lock.stack,
            [*exact, "pip"],
            channels,
            [platform.platform],
            virtual_packages={platform.platform: virtual},
            package_cache=package_cache,
        )
    except SolveError:
        _log.warning(
            "%s: no channel has a pip that is compatible with the lock's Python; conda can install there only after "
            "`conda config --set add_pip_as_python_dependency false`",
            platform.platform,
        )
        return lock


def platforms_of(locks: Iterable[Lock]) -> list[str]:
    """The platforms of the locks, sorted."""
    return sorted({platform.platform for lock in locks for platform in lock.platforms})


def plan_packages(
    needed: Collection[ChannelPackage],
    channels: Sequence[SourceChannel],
    *,
    platforms: Collection[str],
    client: HttpClient,
    since: Received | None = None,
) -> list[ChannelPart]:
    """The packages needed from the channels, and those in ``since`` that the importing site keeps.

    Raises UsageError for a package of another channel, IntegrityError if a channel lists other bytes than were locked,
    ChannelError and NetworkError for channels that cannot be read.
    """
    known = {channel.plain_address for channel in channels}
    for address, package in sorted(needed):
        if address not in known:
            message = f"{package.file_name} is locked from {address}, which is not one of the mirrored channels"
            raise UsageError(message, hint=f"add --channel {address}, or lock again from the channels given")
    return [
        _plan_channel(
            channel,
            sorted(package for address, package in needed if address == channel.plain_address),
            [NOARCH, *platforms],
            _received_packages(channel, since),
            client,
        )
        for channel in channels
    ]


def _received_packages(channel: SourceChannel, since: Received | None) -> dict[PackageKey, str]:
    """The packages of the channel that the importing site has, with their sha256."""
    files = {} if since is None else since.files
    hashes = {package_at(path, channel.name): sha256 for path, sha256 in files.items()}
    return {key: sha256 for key, sha256 in hashes.items() if key is not None}


def _plan_channel(
    channel: SourceChannel,
    needed: Sequence[PackageRef],
    subdirs: Iterable[str],
    received: Mapping[PackageKey, str],
    client: HttpClient,
) -> ChannelPart:
    needed_packages = {package.key: package for package in needed}
    keys = sorted({*needed_packages, *received})
    indexes = {
        subdir: read_index(channel.address, subdir, {key.file_name for key in keys if key.subdir == subdir}, client)
        for subdir in sorted({*subdirs, *(key.subdir for key in keys)})
    }
    records = {subdir: index.records for subdir, index in indexes.items()}
    packages: list[RemoteFile] = []
    removed: list[PackageKey] = []
    for key in keys:
        record = records[key.subdir].get(key.file_name)
        if key not in needed_packages and record is not None and record.get("sha256") != received[key]:
            # replaced in the channel: this record is not for the file that the site has
            del records[key.subdir][key.file_name]
            record = None
        if record is None:
            removed.append(key)
        if key in needed_packages:
            packages.append(
                _remote_package(channel, _checked(channel, needed_packages[key], record), indexes[key.subdir].folder)
            )
        elif record is not None:
            packages.append(
                _remote_package(channel, key.ref(received[key], _size_in(record)), indexes[key.subdir].folder)
            )
    return ChannelPart(channel=channel, packages=tuple(packages), records=records, removed=tuple(removed))


def _checked(channel: SourceChannel, package: PackageRef, record: JsonObject | None) -> PackageRef:
    """The locked package, with its size from the channel's record if the lock's format does not have it."""
    if record is not None and record.get("sha256") != package.sha256:
        message = (
            f"{channel.plain_address}/{package.key}: the channel lists other bytes "
            f"(sha256 {record.get('sha256')}) than were locked ({package.sha256})"
        )
        raise IntegrityError(message, hint="published files never change: find out who changed it, then lock again")
    return package if package.size_bytes or record is None else replace(package, size_bytes=_size_in(record))


def _size_in(record: JsonObject) -> int:
    """The size in a record, 0 if it has none."""
    size_bytes = record.get("size")
    return size_bytes if isinstance(size_bytes, int) else 0


def _remote_package(channel: SourceChannel, package: PackageRef, folder: str) -> RemoteFile:
    path = channel_path(channel.name, package.key)
    if not package.size_bytes or not is_safe_path(path):
        message = (
            f"{channel.plain_address}/{package.key}: its record in the index has no size, "
            "or a name not allowed in bundles"
        )
        raise IntegrityError(message, hint="index the channel again")
    url = folder + package.file_name
    return RemoteFile(path=path, size_bytes=package.size_bytes, sha256=package.sha256, url=url)


def read_since(path: Path) -> Received:
    """What an importing site has: from its received.json that was brought back, or from the last bundle it imported.

    Neither is verified: at worst a file is left out of the bundle, which the importing site reports as missing. Raises
    ConfigError, UsageError or BundleRejectedError if it is neither.
    """
    if path.is_file() and path.suffix == ".json":
        return read_received(path)
    reader = open_bundle(path)
    names = [name for name in reader.sizes if re.fullmatch(rf"{METADATA_FOLDER}/\d+\.targets\.json", name)]
    if len(names) != 1:
        raise bundle_damaged(path, f"has {counted(len(names), 'list')} of targets; expected one")
    if (size_bytes := reader.sizes[names[0]]) > RECORD_BYTES:
        raise bundle_damaged(path, f"{names[0]} has {size_bytes} bytes; at most {RECORD_BYTES} are read")
    with reader.open(names[0]) as stream:
        content = reader.read(stream, size_bytes)
    try:
        signed = decode_json(content, _TargetsFile).signed
    except msgspec.MsgspecError as err:
        raise bundle_damaged(path, f"{names[0]} is not TUF metadata ({err})") from None
    files = {name: target.hashes.get("sha256", "") for name, target in signed.targets.items()}
    return Received(version=signed.version, root_sha256="", files=files)


class _Target(msgspec.Struct):
    hashes: dict[str, str]


class _Signed(msgspec.Struct):
    version: int
    targets: dict[str, _Target]


class _TargetsFile(msgspec.Struct):
    """The needed part of targets metadata, read without the TUF library, since it is not used for verification."""

    signed: _Signed


def attestation_files(parts: Iterable[ChannelPart], client: HttpClient) -> dict[str, bytes]:
    """The attestations named in the records of a bundle's packages, by path.

    Raises IntegrityError if their bytes differ from the hash in the record, NetworkError.
    """
    contents: dict[str, bytes] = {}
    for part in parts:
        for package in part.packages:
            key = package_at(package.path)
            record = None if key is None else part.records[key.subdir].get(key.file_name)
            sha256 = None if record is None else record.get(RECORD_FIELD)
            if key is not None and isinstance(sha256, str):
                name = f"{key.subdir}/{hashed_name(key.file_name, sha256)}"
                path, url = channel_path(part.channel.name, name), hashed_name(package.url, sha256)
                contents[path] = _read_attestations(url, client)
                if sha256_of(contents[path]) != sha256 or not is_safe_path(path):
                    message = f"{without_credentials(url)}: its bytes differ from the hash in the record of {key}"
                    raise IntegrityError(message, hint="index the channel again")
    return contents


def _read_attestations(url: str, client: HttpClient) -> bytes:
    local = local_path(url)
    if local is None:
        return client.read(url, limit_bytes=LIMIT_BYTES)
    try:
        return read_sidecar(local, folder=subdir_beneath(local))
    except FileNotFoundError:
        message = f"{local}: is named in its package's record, but does not exist"
        raise ChannelError(message, hint="run channel_tools channel verify to see what is wrong there") from None


def index_files(
    locks: Iterable[Lock], parts: Iterable[ChannelPart], *, complete: bool, now: datetime
) -> dict[str, bytes]:
    """The indexes and locks of a bundle by path; with ``complete`` clients can use its channels as they are."""
    files: dict[str, bytes] = {lock_path(lock.stack): encode_lock(lock) for lock in locks}
    for part in parts:
        name = part.channel.name
        for subdir, records in part.records.items():
            contents = plain_index(subdir, records)
            if complete:
                contents |= derived_index(subdir, records, contents, now_s=now.timestamp())
            files |= {channel_path(name, f"{subdir}/{file_name}"): content for file_name, content in contents.items()}
        if complete:
            files[channel_path(name, CHANNELDATA)] = channeldata(part.records)
    return files
