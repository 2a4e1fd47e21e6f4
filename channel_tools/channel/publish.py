# SPDX-License-Identifier: BSD-3-Clause
"""How packages enter a channel and which of them new solves see.

A set enters as a whole: its files are first named as incoming, which no index lists, then linked in, then listed
together. Files never change and leave only by retention; what is superseded is only hidden, so that lock files keep
working.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.archive import read_package
from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.listing import admitted, prefer, with_foundation, with_patch
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.records import CachedPackage, cached_package, changed, stamp_of
from channel_tools.channel.state import load_channel, write_listing
from channel_tools.channel.store import published_package
from channel_tools.errors import ChannelError, IntegrityError
from channel_tools.files import link_or_copy, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.model import ChannelWriter, PublishedPackage
    from channel_tools.channel.patches import Patch
    from channel_tools.channel.state import LoadedChannel, SubdirState


def add_packages(writer: ChannelWriter, files: Sequence[Path]) -> IndexReport:
    """Check package files that lie in ``.../subdir/name.conda``, take them into the channel and index it.

    All are checked before the first enters; readers see all of them or none. Older builds of the same variant of a
    package are hidden by newer ones. A file that is there already with the same bytes is left alone. Raises
    IntegrityError for a damaged file, ChannelError when the channel has other bytes under a name or it was yanked,
    DiskFullError.
    """
    return add_set(writer, files, ())


def link_foundation(writer: ChannelWriter, files: Sequence[Path]) -> IndexReport:
    """Make ``files`` (``.../subdir/name.conda``) the foundation packages of their subdirs in the channel and index it.

    They are hard links where the file system allows. Packages of an earlier foundation that are not among them stay in
    the folder for lock files but leave the indexes, so that new solves see one coherent set. Raises as add_packages.
    """
    return add_set(writer, (), files)


def add_set(
    writer: ChannelWriter,
    own: Sequence[Path],
    foundation: Sequence[Path],
    *,
    trusted: Mapping[str, CachedPackage] | None = None,
    patches: Mapping[str, Patch] | None = None,
) -> IndexReport:
    """Take own packages and, unless it is empty, a whole new foundation set into the channel, shown together.

    As add_packages for ``own`` and link_foundation for ``foundation``; raises as they do. ``trusted`` are rows (by
    ``subdir/file name``) of files that another channel of ours has read in full; they are not read again while their
    stamps are the same. ``patches`` of subdirs come with the packages.
    """
    files = [*foundation, *own]
    keys = [_key(path) for path in own]
    loaded = load_channel(writer.channel, and_subdirs={path.parent.name for path in files})
    rows, fresh = _rows_to_enter(writer, loaded, files, trusted or {})
    listing = admitted(loaded.listing, dict.fromkeys(map(_key, files)) | {key: row.sha256 for key, row in rows.items()})
    if fresh:
        write_listing(writer.channel, dataclasses.replace(loaded.listing, incoming=tuple(sorted(fresh))))
    for path in files:
        if _key(path) in rows:
            _take_in(path, writer.channel.path / _key(path))
    known = {key: msgspec.structs.replace(row, stamp=stamp_of(writer.channel.path / key)) for key, row in rows.items()}
    if foundation:
        listing = with_foundation(listing, [_key(path) for path in foundation])
    for subdir, patch in (patches or {}).items():
        listing = with_patch(listing, subdir, patch, replace=False)
    listing = prefer(listing, _candidates(loaded, known, keys), keys)
    if fresh or listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing), known=known)


def prefer_packages(writer: ChannelWriter, names: Iterable[str]) -> IndexReport:
    """Make new solves see these own packages (``subdir/file name``) and no other build of the same variant.

    This is what makes going back to an earlier recipe work: its package is there already, but a newer one would win.
    """
    keys = list(names)
    loaded = load_channel(writer.channel)
    listing = prefer(loaded.listing, _candidates(loaded, {}, keys), keys)
    if listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing))


def check_package(path: Path, *, indexed_ms: int = 0) -> CachedPackage:
    """Read a package in full, as the channel does before it takes it in; returns its cache row.

    Raises IntegrityError for what is wrong with it, ChannelError when it is no ``.conda`` file.
    """
    if not path.name.endswith(PACKAGE_SUFFIX) or not path.is_file():
        raise ChannelError(f"{path}: no such package file; expected the path of a {PACKAGE_SUFFIX} file")
    facts = read_package(path, contents=True)
    return cached_package(path, facts, stamp=stamp_of(path), indexed_ms=indexed_ms)


def _rows_to_enter(
    writer: ChannelWriter, loaded: LoadedChannel, files: Sequence[Path], trusted: Mapping[str, CachedPackage]
) -> tuple[dict[str, CachedPackage], set[str]]:
    """The rows of the files that have to be linked in, each checked, and the names that are new in the folder."""
    rows, fresh = {}, set()
    for path in files:
        destination = writer.channel.path / _key(path)
        exists = destination.exists()
        if exists and _is_present(path, destination, loaded.states[path.parent.name]):
            continue
        rows[_key(path)] = _checked_row(path, trusted.get(_key(path)), indexed_ms=int(writer.clock() * 1000))
        if not exists:
            fresh.add(_key(path))
    return rows, fresh


def _checked_row(path: Path, trusted: CachedPackage | None, *, indexed_ms: int) -> CachedPackage:
    if trusted is not None and path.is_file() and trusted.stamp == stamp_of(path):
        return trusted.patched(trusted.record | {"indexed_timestamp": indexed_ms})
    return check_package(path, indexed_ms=indexed_ms)


def _is_present(source: Path, destination: Path, state: SubdirState) -> bool:
    """Whether the channel has these bytes, sound; False when a damaged file may be replaced by its sound original."""
    stamp = stamp_of(destination)
    row, refused = state.records.packages.get(destination.name), state.records.refused.get(destination.name)
    if refused is not None and refused.stamp == stamp:
        wanted = sha256_of_file(source)
        if refused.published is None or refused.published.sha256 == wanted:
            if destination.samefile(source):
                raise IntegrityError(refused.message, hint=refused.hint)
            return False
        raise _other_bytes(destination, source, wanted, hint=refused.hint)
    if not destination.samefile(source) and (wanted := sha256_of_file(source)) != sha256_of_file(destination):
        raise _other_bytes(destination, source, wanted)
    if row is None or row.stamp != stamp:
        found = check_package(destination).sha256
        if row is not None and row.sha256 != found:
            raise changed(destination, found, row.sha256)
    return True


def _other_bytes(destination: Path, source: Path, wanted: str, *, hint: str | None = None) -> ChannelError:
    found = sha256_of_file(destination)
    message = f"{destination}: the channel holds other bytes under this name (sha256 {found}) than {source} ({wanted})"
    return ChannelError(
        message, hint=hint or "published files never change: raise the recipe's build number and build again"
    )


def _take_in(source: Path, destination: Path) -> None:
    if destination.exists():
        destination.unlink()  # damaged: _is_present would have said so otherwise
    link_or_copy(source, destination)


def _candidates(
    loaded: LoadedChannel, known: Mapping[str, CachedPackage], keys: Sequence[str]
) -> list[PublishedPackage]:
    """The own packages that may be builds of the same variant as those of ``keys``: the same names."""
    rows = {
        f"{subdir}/{name}": row
        for subdir, state in loaded.states.items()
        for name, row in state.records.packages.items()
    } | dict(known)
    names = {rows[key].name for key in keys if key in rows}
    foreign = {*loaded.listing.foundation, *loaded.listing.superseded}
    path = loaded.channel.path
    return [
        published_package(path / key, row, None)
        for key, row in rows.items()
        if row.name in names and key not in foreign and (key in known or (path / key).exists())
    ]


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
