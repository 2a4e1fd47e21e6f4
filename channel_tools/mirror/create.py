# SPDX-License-Identifier: BSD-3-Clause
"""Making a bundle: files fetched into a folder beside its destination, indexed, signed last, then renamed into place.

An interrupted run leaves that folder; the next one goes on with what is right in it. A bundle without signatures has
never its own name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.channel.records import encode_json
from channel_tools.errors import DiskFullError, UsageError
from channel_tools.files import atomic_path, disk_full_reported
from channel_tools.locks import exclusive_lock
from channel_tools.mirror.fetch import fetch_files
from channel_tools.mirror.keys import fingerprint
from channel_tools.mirror.locking import encode_lock, lock_path
from channel_tools.mirror.model import BOOTSTRAP, MANIFEST, ROLES, BundleChannel, BundleFile, Manifest, channel_path
from channel_tools.mirror.signing import sign_bundle, take_version
from channel_tools.mirror.subset import channeldata, derived_index, plain_index
from channel_tools.mirror.tarfiles import write_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

    from channel_tools.mirror.fetch import FetchOptions, WantedFile
    from channel_tools.mirror.keys import KeyFolder
    from channel_tools.mirror.model import Received, Role, ToolWheels
    from channel_tools.mirror.plan import PackagePlan
    from channel_tools.pins import Lock
    from channel_tools.progress import Progress

_UNFINISHED = ".unfinished"
_RESERVE_BYTES = 16 << 20
_SYNC_EACH_LIMIT = 64


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
        return all(self.held.get(path) == _sha256(content) for path, content in self.small.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """With what a bundle is signed, and when."""

    folder: KeyFolder
    keys: Mapping[Role, Sequence[CryptoSigner]]
    expiry_days: Mapping[Role, int]
    now: datetime

    @property
    def expires(self) -> str:
        """The day after which a far side refuses what is signed now."""
        return min((self.now + timedelta(days=self.expiry_days[role])).date().isoformat() for role in ROLES[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateReport:
    """A bundle that was made: what it holds, and how much of that had to be fetched now."""

    path: Path
    version: int
    files: int
    size_bytes: int
    fetched_files: int
    fetched_bytes: int
    omitted: int
    root_sha256: str
    bootstrap_sha256: str | None
    expires: str


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
        made |= {channel_path(name, file_name): content for file_name, content in channeldata(part.records).items()}
    return made


def create_bundle(
    request: BundleRequest, destination: Path, *, signing: Signing, options: FetchOptions, progress: Progress
) -> CreateReport:
    """Make the bundle at ``destination``: a folder, or a tar file when its name ends in ``.tar``.

    Raises UsageError when something is there already, DiskFullError before anything is fetched when there is no room
    for all of it, and as fetch_files; the same call afterwards continues.
    """
    if destination.exists():
        hint = "choose another place; channel_tools mirror update makes a bundle of what is new"
        raise UsageError(f"{destination}: exists already; bundles are never overwritten", hint=hint)
    folder = unfinished_folder(destination)
    lock_file = folder.with_name(folder.name + ".lock")
    with disk_full_reported(destination.parent):
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(lock_file, what=f"the unfinished bundle {folder}"):
            check_space(folder, _needed_bytes(folder, request, tar=_is_tar(destination)))
            fetched = fetch_files(request.wanted, folder, options=options, progress=progress)
            for extra in request.brought:
                _copy(extra, folder / extra.path)
            version, metadata = _sign(request, folder, signing)
            names = _complete(request, folder, metadata)
            size_bytes = sum((folder / name).stat().st_size for name in names)
            _rename(folder, destination, [*metadata, *(name for name in names if name not in metadata)])
    for leftover in (lock_file, lock_file.with_name(lock_file.name + ".owner")):
        leftover.unlink(missing_ok=True)
    return CreateReport(
        path=destination,
        version=version,
        files=len(names),
        size_bytes=size_bytes,
        fetched_files=fetched[0],
        fetched_bytes=fetched[1],
        omitted=len(_omitted(request)),
        root_sha256=fingerprint(signing.folder.root_files()[-1]),
        bootstrap_sha256=_sha256(request.small[BOOTSTRAP]) if BOOTSTRAP in request.small else None,
        expires=signing.expires,
    )


def unfinished_folder(destination: Path) -> Path:
    """Where the files of a bundle lie while it is made; the caller may put files there before."""
    return destination.with_name(f".{destination.name}{_UNFINISHED}")


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFullError unless ``needed_bytes`` fit into the file system of ``folder``."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _RESERVE_BYTES:
        message = f"{folder.parent}: {needed_bytes} bytes are needed there, {free} are free; nothing was written"
        raise DiskFullError(message, hint="free space there, or choose another place")


def _copy(extra: ExtraFile, destination: Path) -> None:
    """Copy and never link: what happens to a bundle must not happen to where its files came from."""
    if extra.file != destination:
        destination.unlink(missing_ok=True)
        with atomic_path(destination) as temporary:
            shutil.copyfile(extra.file, temporary)


def _needed_bytes(folder: Path, request: BundleRequest, *, tar: bool) -> int:
    there = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return max(0, request.size_bytes - there) + (request.size_bytes if tar else 0)


def _sign(request: BundleRequest, folder: Path, signing: Signing) -> tuple[int, dict[str, bytes]]:
    """Take a number, write the manifest and what was made here, and sign for all of it."""
    version = take_version(signing.folder)
    content = {**request.small, MANIFEST: _manifest(request, version, signing.now)}
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    targets = [BundleFile(path=path, size_bytes=len(data), sha256=_sha256(data)) for path, data in content.items()]
    targets += [BundleFile(path=item.path, size_bytes=item.size_bytes, sha256=item.sha256) for item in request.extras]
    metadata = sign_bundle(
        signing.folder,
        signing.keys,
        [*targets, *request.packages.files],
        version=version,
        now=signing.now,
        expiry_days=signing.expiry_days,
    )
    return version, metadata


def _manifest(request: BundleRequest, version: int, now: datetime) -> bytes:
    manifest = Manifest(
        version=version,
        created=now.isoformat(timespec="seconds"),
        created_with=f"channel_tools {__version__}",
        stacks=tuple(sorted(lock.stack for lock in request.locks)),
        platforms=tuple(sorted({platform.platform for lock in request.locks for platform in lock.platforms})),
        channels=tuple(
            BundleChannel(
                name=part.channel.name, address=part.channel.shown, own=part.channel.own, removed=part.removed
            )
            for part in request.packages.parts
        ),
        locks=tuple(sorted(lock_path(lock.stack) for lock in request.locks)),
        with_sources=request.with_sources,
        tool=request.tool,
        since=None if request.since is None else request.since.version,
        omitted=tuple(sorted(_omitted(request))),
    )
    return encode_json(manifest) + b"\n"


def _omitted(request: BundleRequest) -> set[str]:
    brought = {extra.path for extra in request.brought}
    return {*request.packages.omitted, *(extra.path for extra in request.extras if extra.path not in brought)}


def _complete(request: BundleRequest, folder: Path, metadata: Mapping[str, bytes]) -> list[str]:
    """Write the signatures, take away what an earlier, other plan left, and bring all to the disk."""
    for name, data in metadata.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    names = {*metadata, *request.small, MANIFEST}
    names |= {item.path for item in request.wanted} | {extra.path for extra in request.brought}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in names:
            path.unlink()
    _flush([folder / name for name in sorted(names)])
    return sorted(names)


def _flush(files: Sequence[Path]) -> None:
    """Bring the files to the disk, many at once instead of one by one."""
    if len(files) > _SYNC_EACH_LIMIT:
        os.sync()
        return
    for path in files:
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _rename(folder: Path, destination: Path, names: Sequence[str]) -> None:
    if not _is_tar(destination):
        folder.rename(destination)
        return
    with atomic_path(destination) as temporary, temporary.open("wb") as stream:
        write_members(stream, ((name, folder / name) for name in names))
    shutil.rmtree(folder)


def _is_tar(destination: Path) -> bool:
    return destination.suffix == ".tar"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
