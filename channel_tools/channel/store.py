# SPDX-License-Identifier: BSD-3-Clause
"""Creates, opens and locks a channel folder, and lists our own packages in it.

Opening a channel for writing also repairs it: files that a killed writer left are removed first.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools import __version__
from channel_tools.channel.index import index_channel
from channel_tools.channel.listing import CHANNEL_SCHEMA, not_listed
from channel_tools.channel.model import (
    RECORD_FOLDER,
    Channel,
    ChannelWriter,
    Foundation,
    IndexedFile,
)
from channel_tools.channel.state import (
    ChannelRecord,
    read_channel_record,
    read_listing,
    read_state,
    write_channel_record,
    write_listing,
)
from channel_tools.conda.package import NOARCH, PackageKey, remove_sidecars, subdirs_of
from channel_tools.conda.repodata import SHARDS_FOLDER
from channel_tools.system.beneath import folder_beneath
from channel_tools.system.errors import ChannelError, FoundationError
from channel_tools.system.files import disk_full_reported
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from channel_tools.channel.records import CachedPackage


def create_channel(
    path: Path, foundation: Foundation, *, subdirs: Sequence[str] = ("linux-64",), within: Path | None = None
) -> Channel:
    """Create an empty, readable channel at ``path`` with ``subdirs`` and noarch, and record its foundation.

    The folder appears atomically; an empty one is replaced. ``within`` is as for open_channel. Raises
    ChannelError if something else exists there.
    """
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise ChannelError(f"{path}: already exists", hint="use it, or give another folder with --output")
    with disk_full_reported(path.parent), _parent_of(path, within) as parent, temporary_folder(parent) as holder:
        channel = Channel(path=holder / path.name, foundation=foundation)
        for subdir in {*subdirs, NOARCH}:
            (channel.path / subdir).mkdir(parents=True)
        channel.path.chmod(0o755)
        record = ChannelRecord(
            schema=CHANNEL_SCHEMA,
            name=path.name,
            foundation=channel.foundation,
            created_with=f"channel_tools {__version__}",
        )
        write_channel_record(channel, record)
        index_channel(ChannelWriter(channel=channel, clock=time.time))
        _rename_new(channel.path, parent / path.name, final=path)
    return Channel(path=path, foundation=foundation, within=within)


@contextlib.contextmanager
def _parent_of(path: Path, within: Path | None) -> Iterator[Path]:
    """The folder in which a channel is made, by its descriptor if it is one that others can exchange."""
    if within is None or path == within:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path.parent
        return
    with folder_beneath(path.parent, within=within).folder(make=True) as descriptor:
        yield Path(f"/proc/self/fd/{descriptor}")


def _rename_new(temporary: Path, path: Path, *, final: Path) -> None:
    try:
        temporary.rename(path)
    except OSError as err:
        if path.exists():
            raise ChannelError(
                f"{final}: was created by another process meanwhile", hint="run the same command again"
            ) from err
        raise


def open_channel(path: Path, *, foundation: Foundation | None = None, within: Path | None = None) -> Channel:
    """Open the channel at ``path``; with ``foundation``, require that the channel was created with it.

    The further channels of ``foundation`` are added to the recorded ones, but not written: record_further does that.
    Links in it must stay in ``within`` (None: in the channel's own folder), a folder above it.

    Raises ChannelError if ``path`` is not a channel, FoundationError if it was created with another foundation.
    """
    recorded = read_channel_record(folder_beneath(path, within=within)).foundation
    if foundation is not None and foundation != recorded:
        message = (
            f"{path}: was made with the foundation {recorded}, not {foundation}; "
            "a channel has one foundation, since packages of two are not compatible"
        )
        option = (
            f"--base {recorded.release}"
            if foundation.kind == recorded.kind == "registry"
            else f"--foundation {recorded.kind}"
        )
        hint = f"use {option}, or create another channel for {foundation} with --output FOLDER"
        raise FoundationError(message, hint=hint)
    if foundation is not None:
        recorded = recorded.with_further(foundation.further)
    return Channel(path=path, foundation=recorded, within=within)


def ensure_channel(
    path: Path, foundation: Foundation, *, subdirs: Sequence[str] = ("linux-64",), within: Path | None = None
) -> Channel:
    """Open the channel at ``path`` with this foundation, or create it if nothing or an empty folder is there.

    Of an existing one, nothing is written: who has its lock calls record_further. ``within`` is as for open_channel.
    Raises as open_channel and create_channel do.
    """
    if not path.exists() or (path.is_dir() and not folder_beneath(path, within=within).names()):
        try:
            return create_channel(path, foundation, subdirs=subdirs, within=within)
        except ChannelError:
            if not (path / RECORD_FOLDER).exists():  # else another process has just created it
                raise
    return open_channel(path, foundation=foundation, within=within)


def record_further(channel: Channel) -> Channel:
    """Add the channel's further channels to its record, which others may have changed; returns the channel.

    To be called with the writer's lock (channel_writer).
    """
    record = read_channel_record(channel.files)
    foundation = record.foundation.with_further(channel.foundation.further)
    if record.foundation.further != foundation.further:
        write_channel_record(channel, dataclasses.replace(record, foundation=foundation))
    return dataclasses.replace(channel, foundation=foundation)


@contextlib.contextmanager
def channel_writer(
    channel: Channel, *, clock: Callable[[], float] = time.time, wait_s: float = 0.0
) -> Iterator[ChannelWriter]:
    """Hold the writer's lock for the block, after removing what a killed writer left.

    Raises ChannelError if another process writes to the channel for longer than ``wait_s``.
    """
    resource, folder = f"the channel {channel.path}", channel.files.folder(RECORD_FOLDER, make=True)
    with exclusive_lock(channel.lock_file, resource=resource, timeout_s=wait_s, folder=folder):
        _clear_leftovers(channel)
        yield ChannelWriter(channel=channel, clock=clock)


def _clear_leftovers(channel: Channel) -> None:
    listing = read_listing(channel)
    for name in listing.incoming:  # of a set that was never completed: no index named them, so they can be removed
        key = PackageKey.parse(name)
        remove_sidecars(channel.files.at(key.subdir), key.file_name)
        channel.files.remove(name)
    if listing.incoming:
        write_listing(channel, dataclasses.replace(listing, incoming=()))
    folders = ["", RECORD_FOLDER, f"{RECORD_FOLDER}/state"]
    for subdir in subdirs_of(channel.files):
        folders += [subdir, f"{subdir}/{SHARDS_FOLDER}"]
    for folder in folders:
        channel.files.remove_leftovers(folder)


def published_packages(channel: Channel) -> list[IndexedFile]:
    """Our own packages (not the foundation's) in the channel's last index, including hidden ones, by subdir and name.

    Reads only the record cache, so it is fast and needs no lock; files deleted since are left out.
    """
    files = indexed_files(channel, subdirs_of(channel.files))
    return [file for file in files.values() if not file.ref.foundation]


def indexed_files(channel: Channel, subdirs: Collection[str]) -> dict[PackageKey, IndexedFile]:
    """Every existing package file of ``subdirs`` that the channel's last index read, in order.

    Includes foundation packages and hidden ones, but not damaged or changed ones. Needs no lock.
    """
    listing = read_listing(channel)
    foundation, incoming, hidden = {*listing.foundation, *listing.superseded}, {*listing.incoming}, not_listed(listing)
    files: dict[PackageKey, IndexedFile] = {}
    for subdir in sorted(subdirs):
        present = set(channel.files.names(subdir))
        for name, row in sorted(read_state(channel, subdir).records.packages.items()):
            key = f"{subdir}/{name}"
            if name not in present or key in incoming:
                continue
            package_key = PackageKey(subdir, name)
            ref = package_key.ref(row.sha256, row.stamp.size_bytes, foundation=key in foundation)
            files[package_key] = IndexedFile(ref=ref, path=channel.path / key, row=row, hidden=hidden.get(key))
    return files


def published_package(path: Path, row: CachedPackage, hidden: str | None) -> IndexedFile:
    """The record cache's data on a package of ours at ``.../subdir/file name``."""
    ref = PackageKey.of(path).ref(row.sha256, row.stamp.size_bytes)
    return IndexedFile(ref=ref, path=path, row=row, hidden=hidden)
