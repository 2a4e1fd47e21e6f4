# SPDX-License-Identifier: BSD-3-Clause
"""Importing a bundle on the far side.

Everything is verified on its way into ``.mirror/incoming``, and only when all of it was right anything else changes:
the trusted metadata first, then channel by channel, those that others are solved with before ours. Each channel shows
its new packages in one step. A killed import is completed by the next one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.addresses import channel_address, without_credentials
from channel_tools.channel import Foundation, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.files import disk_full_reported, link_or_copy, remove_leftovers, sha256_of_file
from channel_tools.mirror.farchannels import (
    FarChannel,
    Publishing,
    far_foundation,
    is_package,
    packages_of,
    publish_channel,
    take_foreign,
)
from channel_tools.mirror.locking import decode_lock, write_locks
from channel_tools.mirror.model import CHANNELS_FOLDER, LOCKS_FOLDER, VENV, BundleFile, Received
from channel_tools.mirror.space import check_space, unusable_reported
from channel_tools.mirror.verify import check_content, check_held, each_file, open_trusted, present_files, read_target
from channel_tools.publish.open import open_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.mirror.farplace import FarPlace
    from channel_tools.mirror.farside import FarState
    from channel_tools.mirror.http import HttpReader
    from channel_tools.mirror.model import Manifest, TrustedBundle
    from channel_tools.mirror.reading import BundleReader
    from channel_tools.pins import Lock
    from channel_tools.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What an import did: the channels' addresses by name, in order of priority, and how much was new.

    ``received`` is the list to carry back for the next update.
    """

    version: int
    addresses: dict[str, str]
    files: int
    size_bytes: int
    stacks: tuple[str, ...]
    platforms: tuple[str, ...]
    received: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """How to import: ``root_sha256`` says whom to trust the first time, ``environ`` has credentials for a server."""

    root_sha256: str | None
    environ: Mapping[str, str]
    http: HttpReader
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a bundle brings, trusted and compared with what is here."""

    bundle: TrustedBundle
    manifest: Manifest
    new: list[BundleFile]
    locks: dict[str, Lock]
    report: ImportReport


def import_bundle(reader: BundleReader, place: FarPlace, options: ImportOptions, *, progress: Progress) -> ImportReport:
    """Take a bundle in: channels, locks, sources, the tool's wheels, below the names they have in it.

    Raises BundleRefusedError (nothing has changed then), UsageError when nothing says whom to trust, DiskFullError
    before anything is copied when there is no room, and what publishing raises.
    """
    state = place.state
    found, held = _compare(reader, place, options)  # a bundle that is refused leaves no trace
    if options.dry_run:
        return found.report
    with disk_full_reported(place.files), unusable_reported(place.files), state.locked():
        _clear_leftovers(place.files)
        found, held = _compare(reader, place, options)
        _stage(reader, state, found.new, progress)
        state.keep_trusted(found.bundle.metadata)
        _place_channels(place, found, options, progress)
        _place_files(place, found)
        files = {**held, **{file.path: file.sha256 for file in found.bundle.targets.values()}}
        bundle = found.bundle
        state.write_received(Received(version=bundle.version, root_sha256=bundle.root_sha256, files=files))
        shutil.rmtree(state.incoming, ignore_errors=True)
    return found.report


def _compare(reader: BundleReader, place: FarPlace, options: ImportOptions) -> tuple[_Found, dict[str, str]]:
    """What the bundle brings, and what is here already."""
    before = place.state.received() or Received(version=0, root_sha256="")
    held = _still_there(place.files, before)
    known = Received(version=before.version, root_sha256=before.root_sha256, files=held)
    trusted = place.state.trusted()
    bundle, manifest = open_trusted(reader, trusted=trusted, root_sha256=options.root_sha256, received=known)
    for path in _lost_on_server(place, manifest, held, options):
        del held[path]
    check_held(reader, bundle, held)
    new = [file for file in present_files(reader, bundle) if held.get(file.path) != file.sha256]
    report = ImportReport(
        version=bundle.version,
        addresses={
            channel.name: without_credentials(channel_address(place.target(channel))) for channel in manifest.channels
        },
        files=len(new),
        size_bytes=sum(file.size_bytes for file in new),
        stacks=manifest.stacks,
        platforms=manifest.platforms,
        received=place.state.received_file,
    )
    fresh = {file.path for file in new} & set(manifest.locks)
    locks = {path: decode_lock(read_target(reader, bundle, path), where=path) for path in fresh}
    return _Found(bundle=bundle, manifest=manifest, new=new, locks=locks, report=report), held


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
    """What was received and not deleted since; indexes count, since those of our own channels are written anew here."""
    on_server = not (folder / CHANNELS_FOLDER).is_dir()
    return {
        path: sha256
        for path, sha256 in received.files.items()
        if (folder / _place_in(path)).exists() or _is_index(path) or (on_server and is_package(path))
    }


def _lost_on_server(place: FarPlace, manifest: Manifest, held: Mapping[str, str], options: ImportOptions) -> list[str]:
    """Packages that were received and that the server does not have; nothing where channels are folders."""
    lost = []
    for channel in manifest.channels:
        if place.folder(channel) is not None:
            continue
        prefix = f"{CHANNELS_FOLDER}/{channel.name}/"
        there = packages_of(open_target(place.target(channel), environ=options.environ))
        keys = {package.key for package in there}
        mine = [path for path in held if path.startswith(prefix) and is_package(path)]
        lost += [path for path in mine if path.removeprefix(prefix) not in keys]
    return lost


def _place_in(path: str) -> str:
    """Where a file of a bundle is to be found on the far side: locks become folders of files."""
    return path.removesuffix(".json") if path.startswith(f"{LOCKS_FOLDER}/") else path


def _is_index(path: str) -> bool:
    return path.startswith(f"{CHANNELS_FOLDER}/") and not is_package(path)


def _stage(reader: BundleReader, state: FarState, new: list[BundleFile], progress: Progress) -> None:
    """Copy what is new to ``incoming``, hashing it; what an interrupted import left there is used when it is right."""
    state.incoming.mkdir(parents=True, exist_ok=True)
    total = sum(file.size_bytes for file in new)
    there = sum(max(0, _size(state.incoming / file.path)) for file in new)
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


def _place_channels(place: FarPlace, found: _Found, options: ImportOptions, progress: Progress) -> None:
    """Foreign channels first: ours is solved with them."""
    channels = found.manifest.channels
    foreign = [channel for channel in channels if not channel.own]
    addresses = [found.report.addresses[channel.name] for channel in foreign]
    for channel in (*foreign, *(channel for channel in channels if channel.own)):
        arriving = FarChannel(
            incoming=place.state.incoming / CHANNELS_FOLDER / channel.name,
            channel=channel,
            targets=_targets_of(found.bundle.targets, channel.name),
        )
        folder = place.folder(channel)
        if folder is not None and not channel.own:
            take_foreign(arriving, folder)
        elif arriving.packages:
            existing = None if folder is None or not folder.exists() else open_channel(folder).foundation
            publishing = Publishing(
                target=open_target(place.target(channel), environ=options.environ),
                address=channel_address(place.target(channel)),
                foundation=far_foundation(addresses, existing) if channel.own else Foundation(kind="registry"),
                name=f"stack {', '.join(found.manifest.stacks)}" if channel.own else channel.name,
                reader=options.http,
            )
            publish_channel(arriving, publishing, progress=progress)


def _targets_of(targets: Mapping[str, BundleFile], name: str) -> dict[str, BundleFile]:
    prefix = f"{CHANNELS_FOLDER}/{name}/"
    return {path.removeprefix(prefix): file for path, file in targets.items() if path.startswith(prefix)}


def _place_files(place: FarPlace, found: _Found) -> None:
    """Put what is no channel in place, locks with the addresses that channels have here."""
    incoming, fresh = place.state.incoming, {file.path for file in found.new}
    for path in sorted(fresh):
        if not path.startswith((f"{CHANNELS_FOLDER}/", f"{LOCKS_FOLDER}/")):
            _replace(incoming / path, place.files / path)
    near = {channel.address: found.report.addresses[channel.name] for channel in found.manifest.channels}
    write_locks(found.locks, place.files, near)


def _replace(source: Path, destination: Path) -> None:
    """Put a file in place under a name that another version of it may have."""
    if destination.is_file():
        if sha256_of_file(destination) == sha256_of_file(source):
            return
        destination.unlink()
    link_or_copy(source, destination)
