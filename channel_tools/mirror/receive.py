# SPDX-License-Identifier: BSD-3-Clause
"""Importing a bundle on the far side, into a folder.

Everything is verified on its way into ``.mirror/incoming``, and only when all of it was right anything else changes:
the trusted metadata first, then channel by channel, those that others are solved with before ours. Each channel shows
its new packages in one step. A killed import is completed by the next one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.model import PACKAGE_SUFFIX, RECORD_FOLDER
from channel_tools.files import disk_full_reported, link_or_copy, remove_leftovers, sha256_of_file
from channel_tools.mirror.create import check_space
from channel_tools.mirror.farchannels import FarChannel, take_foreign, take_own
from channel_tools.mirror.farside import FarState, far_state
from channel_tools.mirror.locking import write_locks
from channel_tools.mirror.model import (
    CHANNELS_FOLDER,
    LOCKS_FOLDER,
    VENV,
    BundleFile,
    Received,
)
from channel_tools.mirror.plan import OLD_SUFFIX
from channel_tools.mirror.verify import check_content, each_file, open_trusted, present_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.mirror.model import Manifest, TrustedBundle
    from channel_tools.mirror.reading import BundleReader
    from channel_tools.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What an import did: the channels' addresses by name, in order of priority, and how much was new."""

    version: int
    addresses: dict[str, str]
    files: int
    size_bytes: int
    stacks: tuple[str, ...]
    platforms: tuple[str, ...]
    received: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a bundle brings, trusted and compared with what is here."""

    bundle: TrustedBundle
    manifest: Manifest
    new: list[BundleFile]
    report: ImportReport


def import_bundle(
    reader: BundleReader, folder: Path, *, root_sha256: str | None, dry_run: bool, progress: Progress
) -> ImportReport:
    """Take a bundle into ``folder``: channels, locks, sources, the tool's wheels, below the names they have in it.

    Raises BundleRefusedError (nothing has changed then), UsageError when nothing says whom to trust, DiskFullError
    before anything is copied when there is no room, and what publishing to a folder raises.
    """
    state = far_state(folder)
    if dry_run:
        return _import(reader, folder, state, root_sha256=root_sha256, dry_run=True, progress=progress)
    with disk_full_reported(folder), state.locked():
        _clear_leftovers(folder)
        return _import(reader, folder, state, root_sha256=root_sha256, dry_run=False, progress=progress)


def _import(
    reader: BundleReader, folder: Path, state: FarState, *, root_sha256: str | None, dry_run: bool, progress: Progress
) -> ImportReport:
    before = state.received()
    held = {} if before is None else _still_there(folder, before)
    known = None if before is None else Received(version=before.version, root_sha256=before.root_sha256, files=held)
    empty = Received(version=0, root_sha256="")
    bundle, manifest = open_trusted(reader, trusted=state.trusted(), root_sha256=root_sha256, received=known or empty)
    new = [file for file in present_files(reader, bundle) if held.get(file.path) != file.sha256]
    report = _report(folder, state, bundle, manifest, new)
    if dry_run:
        return report
    found = _Found(bundle=bundle, manifest=manifest, new=new, report=report)
    _stage(reader, state, new, progress)
    state.keep_trusted(bundle.metadata)
    _place(folder, state, found, progress)
    files = {**held, **{file.path: file.sha256 for file in bundle.targets.values()}}
    state.write_received(Received(version=bundle.version, root_sha256=bundle.root_sha256, files=files))
    shutil.rmtree(state.incoming, ignore_errors=True)
    return report


def _clear_leftovers(folder: Path) -> None:
    """Remove temporary files of a killed import; those in channels of ours are theirs to clear."""
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        remove_leftovers(place)
        waiting += [path for path in place.iterdir() if path.is_dir() and not path.is_symlink() and not _is_own(path)]


def _is_own(path: Path) -> bool:
    return (path / RECORD_FOLDER).is_dir() or path.name == VENV


def _still_there(folder: Path, received: Received) -> dict[str, str]:
    """What was received and not deleted since. Indexes of our own channels are written anew here, so they count."""
    return {path: sha256 for path, sha256 in received.files.items() if (folder / path).is_file() or _is_index(path)}


def _is_index(path: str) -> bool:
    return path.startswith(f"{CHANNELS_FOLDER}/") and not path.endswith((PACKAGE_SUFFIX, OLD_SUFFIX))


def _report(
    folder: Path, state: FarState, bundle: TrustedBundle, manifest: Manifest, new: list[BundleFile]
) -> ImportReport:
    return ImportReport(
        version=bundle.version,
        addresses={channel.name: _channel(folder, channel.name).as_uri() for channel in manifest.channels},
        files=len(new),
        size_bytes=sum(file.size_bytes for file in new),
        stacks=manifest.stacks,
        platforms=manifest.platforms,
        received=state.received_file,
    )


def _channel(folder: Path, name: str) -> Path:
    return folder.absolute() / CHANNELS_FOLDER / name


def _stage(reader: BundleReader, state: FarState, new: list[BundleFile], progress: Progress) -> None:
    """Copy what is new to ``incoming``, hashing it; what an interrupted import left there is used when it is right."""
    state.incoming.mkdir(parents=True, exist_ok=True)
    total = sum(file.size_bytes for file in new)
    there = sum(_size(state.incoming / file.path) for file in new)
    check_space(state.incoming, max(0, total - there))
    with progress.task("verifying and copying", total=total, unit="bytes") as task:

        def stage(file: BundleFile) -> None:
            target = state.incoming / file.path
            if _size(target) == file.size_bytes and sha256_of_file(target) == file.sha256:
                task.advance(file.size_bytes)
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + ".part")
            with part.open("wb") as writing:
                check_content(reader, file, on_bytes=task.advance, writing=writing)
            part.replace(target)

        each_file(new, stage)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1


def _place(folder: Path, state: FarState, found: _Found, progress: Progress) -> None:
    manifest, addresses = found.manifest, found.report.addresses
    foreign = [channel for channel in manifest.channels if not channel.own]
    for channel in (*foreign, *(channel for channel in manifest.channels if channel.own)):
        place = FarChannel(
            path=_channel(folder, channel.name),
            incoming=state.incoming / CHANNELS_FOLDER / channel.name,
            channel=channel,
            targets=_targets_of(found.bundle.targets, channel.name),
        )
        if channel.own:
            address = addresses[foreign[0].name] if foreign else None
            take_own(place, foundation_address=address, stacks=manifest.stacks, progress=progress)
        else:
            take_foreign(place)
    fresh = {file.path for file in found.new}
    for path in sorted(fresh):
        if not path.startswith((f"{CHANNELS_FOLDER}/", f"{LOCKS_FOLDER}/")):
            _replace(state.incoming / path, folder / path)
    near = {channel.address: addresses[channel.name] for channel in manifest.channels}
    write_locks({path: (state.incoming / path).read_bytes() for path in fresh & set(manifest.locks)}, folder, near)


def _targets_of(targets: Mapping[str, BundleFile], name: str) -> dict[str, BundleFile]:
    prefix = f"{CHANNELS_FOLDER}/{name}/"
    return {path.removeprefix(prefix): file for path, file in targets.items() if path.startswith(prefix)}


def _replace(source: Path, destination: Path) -> None:
    """Put a file in place under a name that another version of it may have."""
    if destination.is_file():
        if sha256_of_file(destination) == sha256_of_file(source):
            return
        destination.unlink()
    link_or_copy(source, destination)
