# SPDX-License-Identifier: BSD-3-Clause
"""Importing a bundle.

Everything is verified on its way into ``.mirror/incoming``, and anything else changes only after all of it was found
correct: the trusted metadata first, then channel by channel, ours after those that it is solved with. Each channel
shows its new packages in one step. A killed import is completed by the next one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.conda.addresses import channel_address, without_credentials
from channel_tools.conda.repodata import REPODATA
from channel_tools.mirror.files import check_space, unusable_reported
from channel_tools.mirror.format import (
    CHANNELS_FOLDER,
    LOCKS_FOLDER,
    STATE_FOLDER,
    VENV,
    BundleRejectedError,
    Received,
    channel_path,
    decode_lock,
    package_at,
)
from channel_tools.mirror.importing.channels import (
    IncomingChannel,
    Publishing,
    import_foundation,
    packages_of,
    publish_channel,
    put_in_place,
    update_third_party,
)
from channel_tools.mirror.importing.site import (
    INCOMING,
    VERIFY_THREADS,
    check_content,
    check_held,
    check_received,
    open_trusted,
    present_files,
    read_target,
)
from channel_tools.page.write import follow_page
from channel_tools.pins.files import FORMATS, pin_files, write_pin_files
from channel_tools.pins.solve import with_addresses
from channel_tools.publish.target import open_target
from channel_tools.system.beneath import Beneath
from channel_tools.system.files import disk_full_reported
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from channel_tools.conda.fetch import HashedFile
    from channel_tools.mirror.files import BundleReader
    from channel_tools.mirror.format import Manifest
    from channel_tools.mirror.importing.site import ImportState, ImportTarget
    from channel_tools.mirror.metadata import TrustedBundle
    from channel_tools.pins import Lock
    from channel_tools.system.http.client import HttpClient
    from channel_tools.system.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """What an import did: the channels' addresses by name, in order of priority, and how much was new.

    ``held`` counts files of the bundle that were already here, ``held_verified`` those of them that were read and found
    correct. ``received`` is the list to bring back for the next update.
    """

    version: int
    addresses: dict[str, str]
    files: int
    size_bytes: int
    stacks: tuple[str, ...]
    platforms: tuple[str, ...]
    received: Path
    held: int = 0
    held_verified: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """How to import: ``root_sha256`` says which keys to trust the first time, ``environ`` has a server's credentials.

    ``trust_existing`` skips reading the files that are already here.
    """

    root_sha256: str | None
    environ: Mapping[str, str]
    client: HttpClient
    dry_run: bool = False
    trust_existing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """A trusted bundle compared with what the site has: ``new`` files, and the sha256 of ``received`` ones by path."""

    bundle: TrustedBundle
    manifest: Manifest
    new: list[HashedFile]
    locks: dict[str, Lock]
    received: dict[str, str]
    report: ImportReport


def import_bundle(
    reader: BundleReader, target: ImportTarget, options: ImportOptions, *, progress: Progress
) -> ImportReport:
    """Import a bundle: channels, locks, sources, the tool's wheels, under their names in it.

    Raises BundleRejectedError, without having changed anything, UsageError if there are no keys to trust, DiskFullError
    before anything is copied if there is too little space, IntegrityError if a file that is already here has changed,
    and what publishing raises.
    """
    state = target.state
    compared = _compare(reader, target, options)  # a rejected bundle leaves no trace
    if options.dry_run:
        return _with_held(compared, target, options, progress)
    with (
        _nothing_left(target),
        disk_full_reported(target.files),
        unusable_reported(target.files),
        state.locked(),
    ):
        _clear_leftovers(Beneath(root=target.files))
        compared = _compare(reader, target, options)
        bundle = compared.bundle
        report = _with_held(compared, target, options, progress)
        try:
            _stage(reader, state, compared.new, progress)
        except BundleRejectedError:
            state.files.remove_tree(INCOMING)
            raise
        state.put_trusted(bundle.metadata)
        _place_channels(target, compared, options, progress)
        _place_files(target, compared)
        files = {**compared.received, **{file.path: file.sha256 for file in bundle.targets.values()}}
        state.put_received(Received(version=bundle.version, root_sha256=bundle.root_sha256, files=files))
        state.files.remove_tree(INCOMING)
    return report


@contextlib.contextmanager
def _nothing_left(target: ImportTarget) -> Iterator[None]:
    """Remove the folders that the block has made if the bundle turns out to be rejected."""
    state = target.state.folder
    new_folders = [folder for folder in (state, *state.parents) if not folder.exists()]
    try:
        yield
    except BundleRejectedError:
        if new_folders and target.files.is_dir():
            Beneath(root=target.files).remove_tree(STATE_FOLDER)
        for folder in new_folders[1:]:
            with contextlib.suppress(OSError):  # another program has put something there
                folder.rmdir()
        raise


def _with_held(compared: _Comparison, target: ImportTarget, options: ImportOptions, progress: Progress) -> ImportReport:
    count, verified = check_held(
        target, compared.bundle, compared.received, trust=options.trust_existing, progress=progress
    )
    return dataclasses.replace(compared.report, held=count, held_verified=verified)


def _compare(reader: BundleReader, target: ImportTarget, options: ImportOptions) -> _Comparison:
    received = _still_there(target, target.state.received() or {})
    trusted = target.state.trusted()
    bundle, manifest = open_trusted(reader, trusted=trusted, root_sha256=options.root_sha256, received=received)
    for path in _lost_on_server(target, manifest, received, options):
        del received[path]
    check_received(reader, bundle, received)
    new = [file for file in present_files(reader, bundle) if received.get(file.path) != file.sha256]
    report = ImportReport(
        version=bundle.version,
        addresses={
            channel.name: without_credentials(channel_address(target.address(channel))) for channel in manifest.channels
        },
        files=len(new),
        size_bytes=sum(file.size_bytes for file in new),
        stacks=manifest.stacks,
        platforms=manifest.platforms,
        received=target.state.received_file,
    )
    new_locks = {file.path for file in new} & set(manifest.locks)
    locks = {path: decode_lock(read_target(reader, bundle, path), where=path) for path in new_locks}
    return _Comparison(bundle=bundle, manifest=manifest, new=new, locks=locks, received=received, report=report)


def _clear_leftovers(files: Beneath, name: str = "") -> None:
    """Remove temporary files of a killed import, except in our own channels, which do that themselves."""
    files.remove_leftovers(name)
    for entry, status in files.stats(name):
        below = f"{name}/{entry}" if name else entry
        if stat.S_ISDIR(status.st_mode) and entry != VENV and files.stat(f"{below}/{RECORD_FOLDER}") is None:
            _clear_leftovers(files, below)


def _still_there(target: ImportTarget, received: Mapping[str, str]) -> dict[str, str]:
    """What was received and not deleted since; what a server has cannot be seen here and counts as present."""

    files = Beneath(root=target.files)

    def is_there(path: str) -> bool:
        if path.startswith(f"{CHANNELS_FOLDER}/"):
            return target.server is not None or files.stat(_evidence(path)) is not None
        # each lock becomes a folder of files
        return files.stat(path.removesuffix(".json") if path.startswith(f"{LOCKS_FOLDER}/") else path) is not None

    return {path: sha256 for path, sha256 in received.items() if is_there(path)}


def _evidence(path: str) -> str:
    """The file in a channel's folder whose presence shows that a bundle's file is there; for indexes, the main index.

    Indexes are written again here. Without the main one the channel has lost its packages' records and gets them again.
    """
    if package_at(path) is not None:
        return path
    _channels, channel, *below = path.split("/")
    return channel_path(channel, f"{below[0]}/{REPODATA}" if len(below) > 1 else "")


def _lost_on_server(
    target: ImportTarget, manifest: Manifest, received: Mapping[str, str], options: ImportOptions
) -> list[str]:
    """Packages that were received but that the server does not have; empty if channels are folders.

    With a package the server has lost its record, so the channel's indexes are included in that case.
    """
    lost = []
    for channel in manifest.channels:
        if target.folder(channel) is None:
            published = packages_of(open_target(target.address(channel), environ=options.environ))
            keys = {
                path: package_at(path, channel.name)
                for path in received
                if path.startswith(channel_path(channel.name, ""))
            }
            if any(key is not None and key not in published for key in keys.values()):
                lost += [path for path, key in keys.items() if key not in published]
    return lost


def _stage(reader: BundleReader, state: ImportState, new: list[HashedFile], progress: Progress) -> None:
    """Copy what is new to ``incoming``, hashing it; intact files of an interrupted import there are used."""
    with state.files.folder(INCOMING, make=True):
        pass
    incoming = state.files.at(INCOMING)
    total = sum(file.size_bytes for file in new)
    staged_bytes = sum(max(0, _size(incoming, file.path)) for file in new)
    check_space(state.incoming, max(0, total - staged_bytes))
    with progress.task("verifying and copying", total=total, unit="bytes") as task:

        def stage(file: HashedFile) -> None:
            if _size(incoming, file.path) == file.size_bytes and incoming.sha256(file.path) == file.sha256:
                task.advance(file.size_bytes)
                return
            part = f"{file.path}.part"
            with incoming.writing(part) as writing:
                check_content(reader, file, on_bytes=task.advance, writing=writing)
            incoming.move(part, file.path)

        run_in_threads(stage, new, threads=VERIFY_THREADS)


def _size(files: Beneath, name: str) -> int:
    status = files.file_stat(name)
    return -1 if status is None else status.st_size


def _place_channels(target: ImportTarget, compared: _Comparison, options: ImportOptions, progress: Progress) -> None:
    """Publish or update all channels, third-party ones first, since ours is solved with them."""
    channels = compared.manifest.channels
    third_party = [channel for channel in channels if not channel.own]
    addresses = [compared.report.addresses[channel.name] for channel in third_party]
    for channel in (*third_party, *(channel for channel in channels if channel.own)):
        incoming = IncomingChannel(
            incoming=target.state.files.at(f"{INCOMING}/{CHANNELS_FOLDER}/{channel.name}"),
            channel=channel,
            files=_files_of(compared.bundle.targets, channel.name),
        )
        folder = target.folder(channel)
        if folder is not None and not channel.own:
            update_third_party(incoming, folder)
        elif incoming.packages:
            existing = None if folder is None or not folder.exists() else open_channel(folder).foundation
            channel_target = open_target(target.address(channel), environ=options.environ, changed=follow_page)
            published = packages_of(channel_target)
            publishing = Publishing(
                target=channel_target,
                address=channel_address(target.address(channel)),
                published=published,
                foundation=import_foundation(incoming, addresses, existing, published) if channel.own else Foundation(),
                name=f"stack {', '.join(compared.manifest.stacks)}" if channel.own else channel.name,
                client=options.client,
            )
            publish_channel(incoming, publishing, progress=progress)


def _files_of(targets: Mapping[str, HashedFile], name: str) -> dict[str, HashedFile]:
    """The files of a channel, by path in it."""
    prefix = f"{CHANNELS_FOLDER}/{name}/"
    return {path.removeprefix(prefix): file for path, file in targets.items() if path.startswith(prefix)}


def _place_files(target: ImportTarget, compared: _Comparison) -> None:
    """Put everything other than channels in place; locks in every format, with the channels' addresses here."""
    for path in sorted(file.path for file in compared.new):
        if not path.startswith((f"{CHANNELS_FOLDER}/", f"{LOCKS_FOLDER}/")):
            put_in_place(target.state.files.at(INCOMING), Beneath(root=target.files), path)
    own_addresses = {channel.address: compared.report.addresses[channel.name] for channel in compared.manifest.channels}
    for path, lock in sorted(compared.locks.items()):
        folder = target.files / path.removesuffix(".json")
        folder.mkdir(parents=True, exist_ok=True)
        write_pin_files(folder, pin_files(with_addresses(lock, own_addresses), FORMATS))
