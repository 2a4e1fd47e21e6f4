# SPDX-License-Identifier: BSD-3-Clause
"""Indexing: the package files of a channel in, the files that conda clients read out.

Written here and not by rattler's indexer, which writes in place and stops at the first damaged package: every file is
replaced atomically, packages come before the index that names them, what did not change is neither read nor written.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.channeldata import make_channeldata
from channel_tools.channel.content import CHANNELDATA, INDEX_FILES, REPODATA, SubdirContent, not_listed, subdir_content
from channel_tools.channel.model import NOARCH, Channel, ChannelWriter, Finding
from channel_tools.channel.records import CachedPackage, Records, Stamp, encode_json, refresh_records, stamp_of
from channel_tools.channel.shards import remove_stale_shards, shards_on_disk, write_shards
from channel_tools.channel.state import Listing, SubdirState, read_listing, read_state, write_state
from channel_tools.files import write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

_log = logging.getLogger(__name__)
DEFAULT_SHARD_GRACE_S = 24 * 3600.0

_SUBDIR_NAME = re.compile(r"noarch|[a-z]+-[a-z0-9_]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexReport:
    """What an index run did. ``refused`` are files that are in the folder but in no index, with the reason."""

    listed: int
    written: tuple[str, ...]
    refused: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _SubdirIndex:
    """One subdir while it is being indexed."""

    subdir: str
    folder: Path
    state: SubdirState
    records: Records
    content: SubdirContent

    def is_current(self) -> bool:
        """Whether the index files on disk are those that would be written."""
        stamps = {name: _stamp_or_none(self.folder / name) for name in INDEX_FILES}
        return not self.content.shards.new and self.state.content == self.content.digest and stamps == self.state.files


def subdirs_of(channel_path: Path) -> list[str]:
    """The subdirs that a channel folder has, in order; noarch is always one."""
    found = {path.name for path in channel_path.iterdir() if path.is_dir() and _SUBDIR_NAME.fullmatch(path.name)}
    return sorted(found | {NOARCH})


def index_channel(
    writer: ChannelWriter,
    *,
    known: Mapping[str, CachedPackage] | None = None,
    shard_grace_s: float = DEFAULT_SHARD_GRACE_S,
) -> IndexReport:
    """Bring all indexes in step with the package files; with nothing to do, nothing is written.

    Damaged files, and files whose bytes changed under a published name, are left out of every index and reported; they
    do not stop the others. ``known`` (by ``subdir/file name``) spares reading files that the caller has just checked.
    Shards unused for ``shard_grace_s`` are removed. Readers never see a half-written index, or one that names a file
    that is not there. Raises DiskFullError, and ChannelError for damaged records of the channel.
    """
    channel, now_s = writer.channel, writer.clock()
    listing = read_listing(channel)
    parts = [_read_subdir(channel, subdir, listing, known or {}, now_s=now_s) for subdir in subdirs_of(channel.path)]
    written = [name for part in parts for name in _write_subdir(part, now_s=now_s)]
    channeldata_file = channel.path / CHANNELDATA
    if written or not channeldata_file.is_file():
        rows = {part.subdir: {name: part.records.packages[name] for name in part.content.listed} for part in parts}
        write_bytes_atomically(channeldata_file, encode_json(make_channeldata(rows)) + b"\n")
        written.append(CHANNELDATA)
    for part in parts:
        _finish_subdir(channel, part, now_s=now_s, grace_s=shard_grace_s)
    return IndexReport(
        listed=sum(len(part.content.listed) for part in parts),
        written=tuple(written),
        refused=tuple(finding for part in parts for finding in part.records.findings(part.folder)),
    )


def _read_subdir(
    channel: Channel, subdir: str, listing: Listing, known: Mapping[str, CachedPackage], *, now_s: float
) -> _SubdirIndex:
    folder = channel.path / subdir
    state = read_state(channel, subdir)
    first_seen = {} if state.records.packages else _first_seen(folder / REPODATA)
    fresh = {name.partition("/")[2]: row for name, row in known.items() if name.startswith(subdir + "/")}
    records = refresh_records(
        Records(packages=state.records.packages | fresh, refused=state.records.refused),
        folder,
        skip=frozenset(name.partition("/")[2] for name in listing.incoming if name.startswith(subdir + "/")),
        first_seen=first_seen,
        now_ms=int(now_s * 1000),
    )
    _warn_of_lost(folder, state.records, records, expected=not_listed(listing))
    return _SubdirIndex(
        subdir=subdir,
        folder=folder,
        state=state,
        records=records,
        content=subdir_content(
            subdir, records.packages, listing, known_shards=state.shards, present_shards=shards_on_disk(folder)
        ),
    )


def _write_subdir(part: _SubdirIndex, *, now_s: float) -> list[str]:
    """Write what differs, shards before the index that names them; returns the names of the index files written."""
    if part.is_current():
        return []
    part.folder.mkdir(parents=True, exist_ok=True)
    write_shards(part.folder, part.content.shards.new)
    files = part.content.index_files(now_s=now_s)
    for name, body in files.items():
        write_bytes_atomically(part.folder / name, body)
    return [f"{part.subdir}/{name}" for name in files]


def _finish_subdir(channel: Channel, part: _SubdirIndex, *, now_s: float, grace_s: float) -> None:
    used = {shard.sha256 for shard in part.content.shards.shards.values()}
    state = SubdirState(
        records=part.records,
        content=part.content.digest,
        files={name: stamp_of(part.folder / name) for name in INDEX_FILES},
        shards=part.content.shards.shards,
        stale_since_s=remove_stale_shards(part.folder, used, part.state.stale_since_s, now_s=now_s, grace_s=grace_s),
    )
    if state != part.state:
        write_state(channel, part.subdir, state)


def _first_seen(repodata_file: Path) -> dict[str, tuple[str, int]]:
    """What an index without its cache says: file name to (sha256, index time in ms)."""
    try:
        rows = msgspec.json.decode(repodata_file.read_bytes())["packages.conda"]
        return {name: (str(row["sha256"]), int(row["indexed_timestamp"])) for name, row in rows.items()}
    except (FileNotFoundError, msgspec.DecodeError, KeyError, TypeError, ValueError) as err:
        _log.debug("%s: no earlier index (%s)", repodata_file, err)
        return {}


def _warn_of_lost(folder: Path, before: Records, after: Records, *, expected: Collection[str]) -> None:
    """Say which packages have gone; those that no solve saw any more (``subdir/file name``) may."""
    for name in sorted(before.packages.keys() - after.packages.keys() - after.refused.keys()):
        if f"{folder.name}/{name}" in expected:
            continue
        _log.warning("%s: was deleted; it leaves the index", folder / name)


def _stamp_or_none(path: Path) -> Stamp | None:
    return stamp_of(path) if path.is_file() else None
