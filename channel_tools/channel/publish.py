# SPDX-License-Identifier: BSD-3-Clause
"""How packages enter a channel and which of them new solves see.

A set enters as a whole: its files are first named as incoming, which no index lists, then linked in, then listed
together. Files never leave and never change; what is superseded is only hidden, so that lock files keep working.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from channel_tools.channel.archive import read_package
from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.channel.records import CachedPackage, RefusedFile, cached_package, stamp_of
from channel_tools.channel.state import read_listing, read_state, write_listing
from channel_tools.channel.store import published_packages
from channel_tools.errors import ChannelError, IntegrityError
from channel_tools.files import link_or_copy, sha256_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.model import ChannelWriter, PublishedPackage
    from channel_tools.channel.state import Listing


def add_packages(writer: ChannelWriter, files: Sequence[Path]) -> IndexReport:
    """Check package files that lie in ``.../subdir/name.conda``, take them into the channel and index it.

    All are checked before the first enters; readers see all of them or none. Older builds of the same variant of a
    package are hidden by newer ones. A file that is there already with the same bytes is left alone. Raises
    IntegrityError for a damaged file, ChannelError when the channel has other bytes under a name, DiskFullError.
    """
    _insist(writer, files, index_channel(writer, known=_enter(writer, files)))
    return prefer_packages(writer, [_key(path) for path in files])


def add_set(writer: ChannelWriter, own: Sequence[Path], foundation: Sequence[Path]) -> IndexReport:
    """Take own packages and, unless it is empty, a whole new foundation set into the channel, shown in one step.

    As add_packages for ``own`` and link_foundation for ``foundation``; raises as they do.
    """
    files = [*foundation, *own]
    known = _enter(writer, files)
    if foundation:
        _replace_foundation(writer, foundation)
    _insist(writer, files, index_channel(writer, known=known))
    return prefer_packages(writer, [_key(path) for path in own])


def link_foundation(writer: ChannelWriter, files: Sequence[Path]) -> IndexReport:
    """Make ``files`` (``.../subdir/name.conda``) the foundation packages of the channel and index it.

    They are hard links where the file system allows. Packages of an earlier foundation that are not among them stay in
    the folder for lock files but leave the indexes, so that new solves see one coherent set. Raises as add_packages.
    """
    known = _enter(writer, files)
    _replace_foundation(writer, files)
    report = index_channel(writer, known=known)
    _insist(writer, files, report)
    return report


def _replace_foundation(writer: ChannelWriter, files: Sequence[Path]) -> None:
    before = read_listing(writer.channel)
    listing = with_foundation(before, map(_key, files))
    if listing != before:
        write_listing(writer.channel, listing)


def with_foundation(listing: Listing, names: Iterable[str]) -> Listing:
    """The listing in which ``names`` are the foundation packages in force, and earlier ones are superseded; pure."""
    chosen = set(names)
    return dataclasses.replace(
        listing,
        incoming=(),
        foundation=tuple(sorted(chosen)),
        superseded=tuple(sorted({*listing.foundation, *listing.superseded} - chosen)),
    )


def prefer_packages(writer: ChannelWriter, names: Iterable[str]) -> IndexReport:
    """Make new solves see these own packages (``subdir/file name``) and no other build of the same variant.

    Two builds count as the same variant when name, version, build number, subdir and recorded variant are equal. This
    is what makes going back to an earlier recipe work: its package is there already, but a newer one would win.
    """
    listing = read_listing(writer.channel)
    preferred = prefer(listing, published_packages(writer.channel), names)
    if preferred != listing:
        write_listing(writer.channel, preferred)
    return index_channel(writer)


def prefer(listing: Listing, packages: Iterable[PublishedPackage], names: Iterable[str]) -> Listing:
    """The listing in which the own packages ``names`` are seen and no other build of the same variant; pure."""
    by_name = {f"{package.subdir}/{package.file_name}": package for package in packages}
    wanted = {_variant_key(by_name[name]): name for name in names if name in by_name}
    hidden = dict(listing.hidden)
    for name, package in by_name.items():
        chosen = wanted.get(_variant_key(package))
        if chosen == name:
            hidden.pop(name, None)
        elif chosen is not None and package.variant is not None:
            hidden[name] = f"superseded by {chosen}"
    return dataclasses.replace(listing, hidden=hidden)


def check_package(path: Path, *, indexed_ms: int = 0) -> CachedPackage:
    """Read a package in full, as the channel does before it takes it in; returns its cache row.

    Raises IntegrityError for what is wrong with it, ChannelError when it is no ``.conda`` file.
    """
    if not path.name.endswith(PACKAGE_SUFFIX) or not path.is_file():
        raise ChannelError(f"{path}: no such package file; expected the path of a {PACKAGE_SUFFIX} file")
    facts = read_package(path, contents=True)
    return cached_package(path, facts, stamp=stamp_of(path), indexed_ms=indexed_ms)


def _enter(writer: ChannelWriter, files: Sequence[Path]) -> dict[str, CachedPackage]:
    """Link the files in that the channel does not have, as one set; returns their cache rows."""
    channel = writer.channel
    refused = {subdir: read_state(channel, subdir).records.refused for subdir in {path.parent.name for path in files}}
    new = [path for path in files if _must_enter(channel.path / _key(path), path, refused[path.parent.name])]
    if not new:
        return {}
    rows = {_key(path): check_package(path, indexed_ms=int(writer.clock() * 1000)) for path in new}
    listing = read_listing(channel)
    fresh = [key for key in sorted(rows) if not (channel.path / key).exists()]
    write_listing(channel, dataclasses.replace(listing, incoming=tuple(fresh)))
    for path in new:
        destination = channel.path / _key(path)
        if _key(path) not in fresh:
            destination.unlink()  # damaged; _must_enter allowed it
        link_or_copy(path, destination)
    write_listing(channel, listing)
    return {key: dataclasses.replace(row, stamp=stamp_of(channel.path / key)) for key, row in rows.items()}


def _must_enter(destination: Path, source: Path, refused: Mapping[str, RefusedFile]) -> bool:
    """Whether ``source`` has to be linked in; a damaged file in the channel may be replaced by its sound original."""
    if not destination.exists():
        return True
    if destination.samefile(source):
        return False
    wanted, found = sha256_of_file(source), sha256_of_file(destination)
    if wanted == found:
        return False
    row = refused.get(destination.name)
    if row is not None and (row.published is None or row.published.sha256 == wanted):
        return True
    hint = "published files never change: raise the recipe's build number and build again"
    if row is not None:
        hint = row.hint
    message = f"{destination}: the channel holds other bytes under this name (sha256 {found}) than {source} ({wanted})"
    raise ChannelError(message, hint=hint)


def _insist(writer: ChannelWriter, files: Sequence[Path], report: IndexReport) -> None:
    """Raise IntegrityError when one of ``files`` was in the channel before, damaged, and so is in no index."""
    entered = {writer.channel.path / _key(path) for path in files}
    for finding in report.refused:
        if finding.path in entered:
            raise IntegrityError(finding.message, hint=finding.hint)


def _key(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _variant_key(package: PublishedPackage) -> tuple[object, ...]:
    variant = None if package.variant is None else tuple(sorted(package.variant.items()))
    unknown = package.file_name if variant is None else ""
    return package.subdir, package.name, package.version, package.build_number, variant, unknown
