# SPDX-License-Identifier: BSD-3-Clause
"""Adds packages to a channel, and controls which of them new solves see.

A set is added as a whole: its files are first recorded as incoming, which no index lists, then linked in, then listed
together. Files never change and are removed only by retention; superseded ones are only hidden, so that lock files
keep working.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.content import listed_rows
from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.listing import admitted, prefer, with_foundation, with_patch
from channel_tools.channel.records import CachedPackage, Stamp, attested_row, cached_package, changed
from channel_tools.channel.state import load_channel, write_listing
from channel_tools.channel.store import published_package
from channel_tools.conda.archive import read_package
from channel_tools.conda.package import (
    PACKAGE_SUFFIXES,
    PackageKey,
    link_sidecar,
    sidecar_name,
    sidecar_of,
)
from channel_tools.system.beneath import Beneath, folder_of, opened_in, status_in
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.files import sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.channel.state import LoadedChannel, SubdirState
    from channel_tools.conda.contents import JsonObject


Files = Sequence[Path] | Mapping[PackageKey, Path]


def add_set(
    writer: ChannelWriter,
    own: Files,
    foundation: Files = (),
    *,
    trusted: Mapping[PackageKey, CachedPackage] | None = None,
    patches: Mapping[str, Patch] | None = None,
    expected_hashes: Mapping[PackageKey, str] | None = None,
    within: Path | None = None,
    checks_change: bool = False,
) -> IndexReport:
    """Add own packages and, unless empty, a whole new foundation set to the channel, and index it.

    ``own`` and ``foundation`` are paths in folders named after their subdirs, or paths anywhere by their keys. All are
    checked before the first is added; readers see all of them or none. They are hard links if the file system allows;
    existing files with the same bytes are not changed. Newer builds hide older builds of the same variant of an own
    package. Packages of an earlier foundation in the same subdirs that are not in the new one stay in the folder for
    lock files but are removed from the indexes, so that new solves see one coherent set.

    ``trusted`` are rows of files that were read in full for the audit or for another channel of ours; they are not read
    again if their stamps are the same. ``patches`` of subdirs are applied with the packages, and correct them where
    no index can contain what is in them. ``expected_hashes`` are
    the hashes that the files must have. Others can write in ``within``, where the files are then (None: only below the
    channel's own folder). Raises IntegrityError for a damaged file, ChannelError if the channel has other bytes under a
    name or the name was yanked, or if a file changed meanwhile, DiskFullError.
    """
    ours, theirs = _placed(own), _placed(foundation)
    places = {key: _source(path, writer.channel, within) for key, path in (theirs | ours).items()}
    loaded = load_channel(writer.channel, and_subdirs={key.subdir for key in places})
    listing = loaded.listing
    for subdir, patch in (patches or {}).items():
        listing = with_patch(listing, subdir, patch, replace=False)
    rows, fresh = _rows_to_enter(writer, dataclasses.replace(loaded, listing=listing), places, trusted or {})
    for key, row in rows.items():
        if row.sha256 != (expected_hashes or {}).get(key, row.sha256):
            raise _changed_meanwhile(places[key].path)
    entering = {str(key): rows[key].sha256 if key in rows else None for key in places}
    listing = admitted(listing, entering)
    if theirs:
        listing = with_foundation(listing, list(map(str, theirs)))
    listing = _preferring(loaded, listing, rows, list(ours))
    if checks_change:
        _check_change(loaded, listing, rows, places)
    if fresh:
        write_listing(writer.channel, dataclasses.replace(loaded.listing, incoming=tuple(sorted(map(str, fresh)))))
    known = {}
    for key, row in rows.items():
        source = places[key]
        with opened_in(source.path, source.folder) as stream:
            if Stamp.of(os.fstat(stream.fileno())) != row.stamp:
                raise _changed_meanwhile(source.path)
            writer.channel.files.remove(str(key))  # damaged, otherwise _is_present would have returned True
            folder = writer.channel.files.at(key.subdir)
            link_sidecar(source.parent, source.path.name, folder, key.file_name)
            folder.link(stream, key.file_name)
        known[key] = msgspec.structs.replace(row, stamp=_stamp_of(writer.channel, key))
    known |= _attested_since(loaded, places, rows)
    if fresh or listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing), known=known)


def _check_change(
    loaded: LoadedChannel,
    listing: Listing,
    rows: Mapping[PackageKey, CachedPackage],
    places: Mapping[PackageKey, _Source],
) -> None:
    from channel_tools.channel.still_installable import (  # noqa: PLC0415 - imports rattler, which is slow
        check_change,
        stacks_in,
    )

    before, after = {}, {}
    for subdir, state in loaded.states.items():
        fresh = {key.file_name: row for key, row in rows.items() if key.subdir == subdir}
        before[subdir] = listed_rows(subdir, state.records.packages, loaded.listing)
        after[subdir] = listed_rows(subdir, state.records.packages | fresh, listing)

    def stacks_of(key: PackageKey) -> frozenset[str]:
        if key in rows:
            return stacks_in(places[key].path, folder=places[key].folder)
        return stacks_in(key.path_in(loaded.channel.path), folder=loaded.channel.files.at(key.subdir))

    check_change(before, after, stacks_of=stacks_of)


def _placed(files: Files) -> dict[PackageKey, Path]:
    return dict(files) if isinstance(files, Mapping) else {PackageKey.of(path): path for path in files}


def prefer_packages(writer: ChannelWriter, names: Iterable[str]) -> IndexReport:
    """Make these own packages (``subdir/file name``) visible, and no other build of the same variant.

    This makes going back to an earlier recipe work: its package exists, but a newer one would be chosen.
    """
    loaded = load_channel(writer.channel)
    listing = _preferring(loaded, loaded.listing, {}, [PackageKey.parse(name) for name in names])
    if listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing))


def show_attestations(writer: ChannelWriter, keys: Iterable[PackageKey]) -> IndexReport:
    """Update the records of these packages for the attestations that are now beside them, in all indexes.

    A package that was not indexed yet is read like all new ones in the folder.
    """
    loaded = load_channel(writer.channel)
    read = [key for key in keys if key.file_name in loaded.states[key.subdir].records.packages]
    return index_channel(writer, loaded=loaded, known={key: _with_attestations(loaded, key) for key in read})


def _with_attestations(loaded: LoadedChannel, key: PackageKey) -> CachedPackage:
    return attested_row(loaded.row(key), loaded.channel.files.at(key.subdir), key.file_name)


def _attested_since(
    loaded: LoadedChannel, places: Mapping[PackageKey, _Source], entering: Collection[PackageKey]
) -> dict[PackageKey, CachedPackage]:
    """Copy the files' attestations to packages that the channel has without any; returns the rows of these."""
    rows = {}
    for key, source in places.items():
        folder = loaded.channel.files.at(key.subdir)
        if key not in entering and source.is_attested and folder.stat(sidecar_name(key.file_name)) is None:
            link_sidecar(source.parent, source.path.name, folder, key.file_name)
            rows[key] = _with_attestations(loaded, key)
    return rows


def check_package(
    path: Path,
    *,
    indexed_ms: int = 0,
    subdir: str | None = None,
    folder: Beneath | None = None,
    correction: JsonObject | None = None,
) -> CachedPackage:
    """Read a package in full, as before adding it to a channel's ``subdir`` (None: its folder's); returns its row.

    ``folder`` and ``correction`` are as for read_package. Raises IntegrityError if anything is wrong with it,
    ChannelError if it is not a package file.
    """
    if not path.name.endswith(PACKAGE_SUFFIXES) or status_in(path, folder) is None:
        raise ChannelError(f"{path}: no such package file; expected a {' or '.join(PACKAGE_SUFFIXES)} file")
    info = read_package(path, contents=True, folder=folder, correction=correction)
    return cached_package(path, info, indexed_ms=indexed_ms, subdir=subdir, folder=folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    """A file to be published; ``folder`` is its folder if others can write there (None: links are followed)."""

    path: Path
    folder: Beneath | None

    @property
    def parent(self) -> Beneath:
        """Its folder."""
        return self.folder or Beneath(root=self.path.parent)

    @property
    def status(self) -> os.stat_result | None:
        """Its status; None if there is none."""
        return status_in(self.path, self.folder)

    @property
    def is_attested(self) -> bool:
        """Whether there are attestations beside it."""
        return status_in(sidecar_of(self.path), self.folder) is not None

    def sha256(self) -> str:
        """Its hash."""
        return sha256_of_file(self.path) if self.folder is None else self.folder.sha256(self.path.name)


def _source(path: Path, channel: Channel, within: Path | None) -> _Source:
    """Another label is below the channel's own folder, where others write, too."""
    root = channel.within or channel.path
    return _Source(path=path, folder=folder_of(path, root if path.is_relative_to(root) else within))


def _rows_to_enter(
    writer: ChannelWriter,
    loaded: LoadedChannel,
    places: Mapping[PackageKey, _Source],
    trusted: Mapping[PackageKey, CachedPackage],
) -> tuple[dict[PackageKey, CachedPackage], set[PackageKey]]:
    """The rows of the files that have to be linked in, each checked, and the keys that are new in the folder."""
    rows, fresh = {}, set()
    for key, source in places.items():
        exists = writer.channel.files.file_stat(str(key)) is not None
        patch = loaded.listing.patches.get(key.subdir)
        correction = None if patch is None else patch.records.get(key.file_name)
        if exists and _is_present(source, writer.channel, key, loaded.states[key.subdir], correction):
            continue
        indexed_ms = int(writer.clock() * 1000)
        rows[key] = _checked_row(source, key, trusted.get(key), indexed_ms=indexed_ms, correction=correction)
        if not exists:
            fresh.add(key)
    return rows, fresh


def _checked_row(
    source: _Source,
    key: PackageKey,
    trusted: CachedPackage | None,
    *,
    indexed_ms: int,
    correction: JsonObject | None,
) -> CachedPackage:
    status = source.status
    if trusted is not None and status is not None and trusted.stamp == Stamp.of(status):
        return trusted.patched(trusted.record | {"indexed_timestamp": indexed_ms})
    return check_package(
        source.path, indexed_ms=indexed_ms, subdir=key.subdir, folder=source.folder, correction=correction
    )


def _stamp_of(channel: Channel, key: PackageKey) -> Stamp:
    """The stamp of a package file of the channel. Raises ChannelError if it is no longer there."""
    status = channel.files.file_stat(str(key))
    if status is None:
        message = f"{key.path_in(channel.path)}: was removed while it was published"
        raise ChannelError(message, hint="run the same command again")
    return Stamp.of(status)


def _is_same(source: _Source, channel: Channel, key: PackageKey) -> bool:
    """Whether the source and the channel's file are one file, by two names."""
    own, other = channel.files.file_stat(str(key)), source.status
    return own is not None and other is not None and (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)


def _sha256_in(channel: Channel, key: PackageKey) -> str:
    return channel.files.sha256(str(key))


def _is_present(
    source: _Source, channel: Channel, key: PackageKey, state: SubdirState, correction: JsonObject | None
) -> bool:
    """Whether the channel has these bytes, undamaged; False if a damaged file may be replaced by its original."""
    destination, stamp = key.path_in(channel.path), _stamp_of(channel, key)
    row, refused = state.records.packages.get(destination.name), state.records.refused.get(destination.name)
    if refused is not None and refused.stamp == stamp:
        source_sha256 = source.sha256()
        if refused.published is None or refused.published.sha256 == source_sha256:
            if _is_same(source, channel, key):
                raise IntegrityError(refused.message, hint=refused.hint)
            return False
        raise _other_bytes(channel, key, source.path, source_sha256, hint=refused.hint)
    if not _is_same(source, channel, key) and (source_sha256 := source.sha256()) != _sha256_in(channel, key):
        raise _other_bytes(channel, key, source.path, source_sha256)
    if row is None or row.stamp != stamp:
        folder = channel.files.at(key.subdir)
        stored_sha256 = read_package(destination, contents=True, folder=folder, correction=correction).sha256
        if row is not None and row.sha256 != stored_sha256:
            raise changed(destination, stored_sha256, row.sha256)
    return True


def _other_bytes(
    channel: Channel, key: PackageKey, source: Path, source_sha256: str, *, hint: str | None = None
) -> ChannelError:
    destination, stored_sha256 = key.path_in(channel.path), _sha256_in(channel, key)
    message = (
        f"{destination}: the channel has other bytes under this name (sha256 {stored_sha256}) "
        f"than {source} ({source_sha256})"
    )
    return ChannelError(
        message, hint=hint or "published files never change: raise the recipe's build number and build again"
    )


def _changed_meanwhile(path: Path) -> ChannelError:
    return ChannelError(f"{path}: changed while it was published", hint="run the same command again")


def _preferring(
    loaded: LoadedChannel, listing: Listing, known: Mapping[PackageKey, CachedPackage], keys: Sequence[PackageKey]
) -> Listing:
    """The listing in which ``keys`` are visible and no other build of their variants is; ``known`` are new rows."""
    states = {subdir: state.records.packages for subdir, state in loaded.states.items()}
    rows = [known.get(key) or states.get(key.subdir, {}).get(key.file_name) for key in keys]
    names = {row.name for row in rows if row is not None}
    same_name = {
        PackageKey(subdir, file_name): row
        for subdir, packages in states.items()
        for file_name, row in packages.items()
        if row.name in names
    } | {key: row for key, row in known.items() if row.name in names}
    foundation = {*loaded.listing.foundation, *loaded.listing.superseded}
    builds = [
        published_package(key.path_in(loaded.channel.path), row, None)
        for key, row in same_name.items()
        if str(key) not in foundation and (key in known or loaded.channel.files.stat(str(key)) is not None)
    ]
    return prefer(listing, builds, [str(key) for key in keys])
