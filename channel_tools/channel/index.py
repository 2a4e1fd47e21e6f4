# SPDX-License-Identifier: BSD-3-Clause
"""Indexes a channel: reads its package files and writes the files that conda clients read.

rattler's indexer is not used, since it writes in place and stops at the first damaged package. Unchanged files are
neither read nor written. All new index files are written and flushed first, then renamed in quick succession: a full
disk, a kill or a slow compression happens while readers still see the old index everywhere. Packages are in place
before the index that names them, and the index of noarch before those of other subdirs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.content import (
    INDEX_FILES,
    SubdirContent,
    make_channeldata,
    remove_stale_shards,
    shards_on_disk,
    subdir_content,
    write_shards,
)
from channel_tools.channel.listing import Listing, Patch, names_in, not_listed
from channel_tools.channel.model import ChannelFault
from channel_tools.channel.records import CachedPackage, Records, Stamp, refresh_records
from channel_tools.channel.state import (
    STATE_BYTES,
    LoadedChannel,
    SubdirState,
    load_channel,
    read_channeldata_stamp,
    write_channeldata_stamp,
    write_state,
)
from channel_tools.conda.package import NOARCH
from channel_tools.conda.repodata import CHANNELDATA, REPODATA, REPODATA_FROM_PACKAGES
from channel_tools.system.document import decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.conda.package import PackageKey
    from channel_tools.system.beneath import Beneath

_log = logging.getLogger(__name__)
DEFAULT_SHARD_GRACE_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexReport:
    """The result of an index run. ``refused`` are files in the folder that are not indexed, with the reason."""

    listed: int
    written: tuple[str, ...]
    refused: tuple[ChannelFault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _SubdirIndex:
    """One subdir while it is being indexed."""

    subdir: str
    files: Beneath
    state: SubdirState
    records: Records
    content: SubdirContent
    present_shards: set[str]

    def is_current(self) -> bool:
        """Whether the index files on disk are those that would be written."""
        names = (*INDEX_FILES, REPODATA_FROM_PACKAGES)
        stamps = {name: stamp for name in names if (stamp := _stamp_or_none(self.files, name))}
        return not self.content.shards.new and self.state.content == self.content.digest and stamps == self.state.files

    def changed_names(self) -> set[str]:
        """The package names whose records have changed since the last index."""
        before, now = self.state.shards, self.content.shards.shards
        changed = {name for name, shard in now.items() if name not in before or before[name].content != shard.content}
        return changed | (before.keys() - now.keys())


def index_channel(
    writer: ChannelWriter,
    *,
    loaded: LoadedChannel | None = None,
    known: Mapping[PackageKey, CachedPackage] | None = None,
    shard_grace_s: float = DEFAULT_SHARD_GRACE_S,
) -> IndexReport:
    """Update all indexes to match the package files; writes nothing if they are up to date.

    Damaged files, and files whose bytes changed under a published name, are left out of every index and reported;
    they do not stop the others. ``known`` avoids reading files that the caller has just checked, ``loaded`` the
    records that it has just read. Shards unused for ``shard_grace_s`` are removed. Readers never see a half-written
    index, or one that names a missing file.
    Raises DiskFullError, and ChannelError for damaged records of the channel.
    """
    channel, now_s = writer.channel, writer.clock()
    loaded = loaded or load_channel(channel)
    parts = [
        _read_subdir(channel, subdir, state, loaded.listing, known or {}, now_s=now_s)
        for subdir, state in loaded.states.items()
    ]
    written = _write_indexes(channel, parts, now_s=now_s)
    for part in parts:
        used = {shard.sha256 for shard in part.content.shards.shards.values()}
        unused = part.present_shards - used
        names = (*INDEX_FILES, REPODATA_FROM_PACKAGES)
        state = SubdirState(
            records=part.records,
            removed=part.content.removed,
            content=part.content.digest,
            files={name: stamp for name in names if (stamp := _stamp_or_none(part.files, name))},
            shards=part.content.shards.shards,
            stale_since_s=remove_stale_shards(
                part.files, unused, part.state.stale_since_s, now_s=now_s, grace_s=shard_grace_s
            ),
        )
        if state != part.state:
            write_state(channel, part.subdir, state)
    return IndexReport(
        listed=sum(len(part.content.listed) for part in parts),
        written=tuple(written),
        refused=tuple(fault for part in parts for fault in _refused_faults(part.records, part.files.path)),
    )


def _refused_faults(records: Records, folder: Path) -> Iterator[ChannelFault]:
    for name, refused in sorted(records.refused.items()):
        yield ChannelFault(
            path=folder / name,
            kind="changed" if refused.changed else "damaged",
            message=refused.message,
            hint=refused.hint,
        )


def _read_subdir(
    channel: Channel,
    subdir: str,
    state: SubdirState,
    listing: Listing,
    known: Mapping[PackageKey, CachedPackage],
    *,
    now_s: float,
) -> _SubdirIndex:
    files = channel.files.at(subdir)
    first_seen = {} if state.records.packages else _first_seen(files, now_ms=int(now_s * 1000))
    fresh = {key.file_name: row for key, row in known.items() if key.subdir == subdir}
    records = refresh_records(
        Records(packages=state.records.packages | fresh, refused=state.records.refused),
        files,
        skip=names_in(subdir, listing.incoming),
        first_seen=first_seen,
        now_ms=int(now_s * 1000),
        corrections=listing.patches.get(subdir, Patch()).records,
    )
    # no solve could see those that are not listed
    expected = not_listed(listing)
    for name in sorted(state.records.packages.keys() - records.packages.keys() - records.refused.keys()):
        if f"{files.path.name}/{name}" not in expected:
            _log.warning("%s: was deleted; it is removed from the index", files.path / name)
    present = shards_on_disk(files)
    content = subdir_content(subdir, records.packages, listing, known_shards=state.shards, present_shards=present)
    return _SubdirIndex(
        subdir=subdir, files=files, state=state, records=records, content=content, present_shards=present
    )


def _write_indexes(channel: Channel, parts: Sequence[_SubdirIndex], *, now_s: float) -> list[str]:
    """Write what differs; returns the names of the index files written."""
    changed = {part.subdir: part for part in parts if not part.is_current()}
    channeldata = _new_channeldata(channel, parts, changed)
    files: list[tuple[str, bytes]] = []
    for subdir in sorted(changed, key=lambda subdir: (subdir != NOARCH, subdir)):
        content = changed[subdir].content
        write_shards(channel.files.at(subdir), content.shards.new)  # before the index that names them
        files += [(f"{subdir}/{name}", body) for name, body in content.index_files(now_s=now_s).items()]
    if channeldata is not None:
        files.append((CHANNELDATA, channeldata))
    if files:
        channel.files.write_all(files)
    for part in changed.values():
        if part.content.from_packages is None:
            part.files.remove(REPODATA_FROM_PACKAGES)
    if channeldata is not None and (stamp := _stamp_or_none(channel.files, CHANNELDATA)) is not None:
        write_channeldata_stamp(channel, stamp)
    return [name for name, _body in files]


def _new_channeldata(
    channel: Channel, parts: Sequence[_SubdirIndex], changed: Mapping[str, _SubdirIndex]
) -> bytes | None:
    """The new channeldata.json, None if it is up to date."""
    stamp = _stamp_or_none(channel.files, CHANNELDATA)
    is_current = (
        stamp is not None and stamp == read_channeldata_stamp(channel) and all(part.state.content for part in parts)
    )
    if is_current and not changed:
        return None
    names = {name for part in changed.values() for name in part.changed_names()}
    listed = {part.subdir: part.content.listed for part in parts}
    before = channel.files.read(CHANNELDATA, limit_bytes=STATE_BYTES) if is_current else None
    return make_channeldata(listed, before=before, changed=names)


def _first_seen(files: Beneath, *, now_ms: int) -> dict[str, tuple[str, int]]:
    """The data of an index without its cache: file name to (sha256, index time in ms, ``now_ms`` if it has none)."""
    try:
        index = decode_json(files.read(REPODATA, limit_bytes=STATE_BYTES), _Listed)
    except (FileNotFoundError, msgspec.DecodeError) as err:
        _log.debug("%s: no earlier index (%s)", files.path / REPODATA, err)
        return {}
    rows = index.packages | index.packages_conda
    return {name: (row.sha256, row.indexed_timestamp or now_ms) for name, row in rows.items() if row.sha256}


class _ListedRow(msgspec.Struct):
    sha256: str | None = None
    indexed_timestamp: int | None = None


class _Listed(msgspec.Struct):
    """repodata.json of any indexer: the hashes that it listed."""

    packages: dict[str, _ListedRow] = {}
    packages_conda: dict[str, _ListedRow] = msgspec.field(default_factory=dict, name="packages.conda")


def _stamp_or_none(files: Beneath, name: str) -> Stamp | None:
    status = files.file_stat(name)
    return None if status is None else Stamp.of(status)
