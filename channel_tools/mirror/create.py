# SPDX-License-Identifier: BSD-3-Clause
"""Making a bundle: files fetched into a folder beside its destination, indexed, signed last, then renamed into place.

An interrupted run leaves that folder; the next one goes on with what is right in it. A bundle without signatures has
never its own name.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.channel.records import encode_json
from channel_tools.files import atomic_path, disk_full_reported
from channel_tools.locks import exclusive_lock
from channel_tools.mirror.contents import check_destination, remove_lock, sha256_of, unfinished_folder, unfinished_lock
from channel_tools.mirror.fetch import fetch_files
from channel_tools.mirror.keys import fingerprint
from channel_tools.mirror.locking import lock_path
from channel_tools.mirror.model import BOOTSTRAP, MANIFEST, ROLES, BundleChannel, BundleFile, Manifest
from channel_tools.mirror.signing import sign_bundle, take_version
from channel_tools.mirror.space import check_space, unusable_reported
from channel_tools.mirror.tarfiles import write_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

    from channel_tools.mirror.contents import BundleRequest, ExtraFile
    from channel_tools.mirror.fetch import FetchOptions
    from channel_tools.mirror.keys import KeyFolder
    from channel_tools.mirror.model import Role
    from channel_tools.progress import Progress

_SYNC_EACH_LIMIT = 64


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


def create_bundle(
    request: BundleRequest, destination: Path, *, signing: Signing, options: FetchOptions, progress: Progress
) -> CreateReport:
    """Make the bundle at ``destination``: a folder, or a tar file when its name ends in ``.tar``.

    Raises UsageError when something is there already, DiskFullError before anything is fetched when there is no room
    for all of it, and as fetch_files; the same call afterwards continues.
    """
    check_destination(destination)
    folder = unfinished_folder(destination)
    lock_file = unfinished_lock(folder)
    with disk_full_reported(destination.parent), unusable_reported(destination):
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
    remove_lock(lock_file)
    return CreateReport(
        path=destination,
        version=version,
        files=len(names),
        size_bytes=size_bytes,
        fetched_files=fetched[0],
        fetched_bytes=fetched[1],
        omitted=len(_omitted(request)),
        root_sha256=fingerprint(signing.folder.root_files()[-1]),
        bootstrap_sha256=sha256_of(request.small[BOOTSTRAP]) if BOOTSTRAP in request.small else None,
        expires=signing.expires,
    )


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
    targets = [BundleFile(path=path, size_bytes=len(data), sha256=sha256_of(data)) for path, data in content.items()]
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
