# SPDX-License-Identifier: BSD-3-Clause
"""Making a bundle: files fetched into a folder beside its destination, indexed, signed last, then renamed into place.

An interrupted run leaves that folder; the next one continues with the files in it that are intact. An unsigned bundle
never has its final name.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.conda.fetch import HashedFile, fetch_files
from channel_tools.conda.repodata import encode_json
from channel_tools.mirror.exporting.plan import platforms_of
from channel_tools.mirror.files import check_space, unusable_reported, write_members
from channel_tools.mirror.format import BOOTSTRAP, MANIFEST, BundleChannel, Manifest, lock_path, sha256_of
from channel_tools.mirror.keys import fingerprint
from channel_tools.mirror.metadata import sign_bundle
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError, UsageError
from channel_tools.system.files import atomic_path, check_replaceable, disk_full_reported, open_regular
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from channel_tools.conda.fetch import FetchOptions
    from channel_tools.mirror.exporting.plan import BundlePlan
    from channel_tools.mirror.keys import Signing
    from channel_tools.system.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class CreateReport:
    """A bundle that was made: its content, and how much of it had to be fetched in this run."""

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
    plan: BundlePlan, destination: Path, *, signing: Signing, options: FetchOptions, progress: Progress
) -> CreateReport:
    """Make the bundle at ``destination``: a folder, or a tar file if its name ends in ``.tar``.

    Raises UsageError if it exists, DiskFullError before anything is fetched if there is too little space for it, and
    what fetch_files raises; calling it again continues.
    """
    check_destination(destination)
    folder = unfinished_folder(destination)
    files = Beneath(root=folder)
    lock_file = _unfinished_lock(folder)
    with disk_full_reported(destination.parent), unusable_reported(destination):
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(lock_file, resource=f"the unfinished bundle {folder}"):
            check_space(folder, _needed_bytes(files, plan, tar=_is_tar(destination)))
            fetched = fetch_files(plan.new_packages, folder, options=options, progress=progress)
            for extra in plan.new_extras:
                if extra.file != files.path / extra.path:  # copied, never linked: a bundle may be changed
                    files.remove(extra.path)
                    with open_regular(extra.file) as stream:
                        files.copy(stream, extra.path)
            version, metadata = _sign(plan, files, signing)
            names = _complete(plan, files, metadata)
            size_bytes = sum(status.st_size for name in names if (status := files.file_stat(name)) is not None)
            _rename(folder, destination, [*metadata, *(name for name in names if name not in metadata)])
    _remove_lock(lock_file)
    return CreateReport(
        path=destination,
        version=version,
        files=len(names),
        size_bytes=size_bytes,
        fetched_files=fetched[0],
        fetched_bytes=fetched[1],
        omitted=len(plan.omitted),
        root_sha256=fingerprint(signing.folder.root_files()[-1]),
        bootstrap_sha256=sha256_of(plan.small[BOOTSTRAP]) if BOOTSTRAP in plan.small else None,
        expires=signing.last_day,
    )


def check_destination(destination: Path) -> None:
    """Raise UsageError if the destination exists; leftovers of a run that was killed at its end are removed.

    Raises FileAccessError for a device, a pipe, a socket, and a broken link.
    """
    check_replaceable(destination, folder=True)
    if destination.exists():
        _remove_leftovers(unfinished_folder(destination))
        hint = "choose another name; channel_tools mirror update makes a bundle of what is new"
        raise UsageError(f"{destination}: already exists; bundles are never overwritten", hint=hint)


def unfinished_folder(destination: Path) -> Path:
    """The folder for the files of a bundle while it is made; the caller may put files there before."""
    return destination.parent / f".{destination.name}.unfinished"  # with_name fails for "." and "/"


def _unfinished_lock(folder: Path) -> Path:
    return folder.with_name(folder.name + ".lock")


def _remove_leftovers(folder: Path) -> None:
    """Remove them unless another command is working there, or they cannot be removed."""
    lock_file = _unfinished_lock(folder)
    if lock_file.exists() or folder.exists():
        with (
            contextlib.suppress(ChannelError, OSError),
            exclusive_lock(lock_file, resource=f"the unfinished bundle {folder}"),
        ):
            shutil.rmtree(folder, ignore_errors=True)
            _remove_lock(lock_file)


def _remove_lock(lock_file: Path) -> None:
    for leftover in (lock_file, lock_file.with_name(lock_file.name + ".owner")):
        leftover.unlink(missing_ok=True)


def _needed_bytes(files: Beneath, plan: BundlePlan, *, tar: bool) -> int:
    present_bytes = sum(status.st_size for _name, status in files.walk() if stat.S_ISREG(status.st_mode))
    return max(0, plan.size_bytes - present_bytes) + (plan.size_bytes if tar else 0)


def _sign(plan: BundlePlan, files: Beneath, signing: Signing) -> tuple[int, dict[str, bytes]]:
    """Take a number, write the manifest and what was made here, and sign all of it; returns number and metadata."""
    version = signing.folder.take_version()
    content = {**plan.small, MANIFEST: _manifest(plan, version, signing.now)}
    files.write_all(content.items(), durable=False)
    targets = [HashedFile(path=path, size_bytes=len(data), sha256=sha256_of(data)) for path, data in content.items()]
    return version, sign_bundle(signing, [*targets, *plan.extras, *plan.packages], version=version)


def _manifest(plan: BundlePlan, version: int, now: datetime) -> bytes:
    manifest = Manifest(
        version=version,
        created=now.isoformat(timespec="seconds"),
        created_with=f"channel_tools {__version__}",
        stacks=tuple(sorted(lock.stack for lock in plan.locks)),
        platforms=tuple(platforms_of(plan.locks)),
        channels=tuple(
            BundleChannel(
                name=part.channel.name,
                address=part.channel.plain_address,
                own=part.channel.own,
                removed=tuple(map(str, part.removed)),
                base=part.base,
            )
            for part in plan.parts
        ),
        locks=tuple(sorted(lock_path(lock.stack) for lock in plan.locks)),
        with_sources=plan.with_sources,
        tool=plan.tool,
        since=None if plan.since is None else plan.since.version,
        omitted=tuple(plan.omitted),
    )
    return encode_json(manifest) + b"\n"


def _complete(plan: BundlePlan, files: Beneath, metadata: Mapping[str, bytes]) -> list[str]:
    """Write the signatures, remove files of an earlier, other plan, and flush all to the disk; returns the names."""
    files.write_all(metadata.items(), durable=False)
    names = {*metadata, *plan.small, MANIFEST}
    names |= {item.path for item in plan.new_packages} | {extra.path for extra in plan.new_extras}
    for name, status in list(files.walk()):
        if not stat.S_ISDIR(status.st_mode):
            if name not in names:
                files.remove(name)
        elif not files.names(name):
            files.remove_tree(name)
    files.sync(sorted(names))
    return sorted(names)


def _rename(folder: Path, destination: Path, names: Sequence[str]) -> None:
    if not _is_tar(destination):
        folder.rename(destination)
        return
    with atomic_path(destination, clear_abandoned=True) as temporary, temporary.open("wb") as stream:
        files = Beneath(root=folder)
        write_members(stream, ((name, files.opened(name)) for name in names))
    shutil.rmtree(folder)


def _is_tar(destination: Path) -> bool:
    return destination.suffix == ".tar"
