# SPDX-License-Identifier: BSD-3-Clause
"""The files under ``.channel_tools``: the channel's record, its listing, and the cache of the last index.

channel.json and listing.json must not be lost; state/<subdir>.msgpack is a cache. It is written last, so a killed
writer leaves it older than the indexes and the next one writes them again.
"""

from __future__ import annotations

import logging
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from channel_tools.channel.listing import CHANNEL_SCHEMA, Listing
from channel_tools.channel.model import RECORD_FOLDER, Channel, Foundation
from channel_tools.channel.records import STATE_SCHEMA, Records, Stamp, escaped
from channel_tools.conda.package import subdirs_of
from channel_tools.conda.repodata import encode_json
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.package import PackageKey
    from channel_tools.system.beneath import Beneath

_log = logging.getLogger(__name__)
_RECORD_BYTES = 1 << 20
_LISTING_BYTES = 64 << 20
STATE_BYTES = 512 << 20
"""What is read at most of a subdir's cache, and of one of its indexes: a hundred thousand packages have 100 MB."""
CHANNEL_RECORD, LISTING = f"{RECORD_FOLDER}/channel.json", f"{RECORD_FOLDER}/listing.json"
_CHANNELDATA = f"{RECORD_FOLDER}/state/channeldata.msgpack"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelRecord:
    """channel.json: written when the channel is made; only the foundation's further channels are added later."""

    schema: int
    name: str
    foundation: Foundation
    created_with: str


class ShardState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A shard on disk (``sha256`` names it) and the digest of the records it was made from."""

    content: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirState:
    """state/<subdir>.msgpack: the record cache and what the index files looked like when they were written.

    ``removed`` are the names in ``records`` that the index did not list. ``content`` is empty before the first index.
    """

    schema: int = STATE_SCHEMA
    records: Records = field(default_factory=Records)
    removed: tuple[str, ...] = ()
    content: str = ""
    files: dict[str, Stamp] = field(default_factory=dict)
    shards: dict[str, ShardState] = field(default_factory=dict)
    stale_since_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedChannel:
    """A channel's records and caches, read once for several steps under one lock."""

    channel: Channel
    listing: Listing
    states: dict[str, SubdirState]

    def row(self, key: PackageKey) -> CachedPackage:
        """The row of a package. Raises KeyError if the last index did not read it."""
        return self.states[key.subdir].records.packages[key.file_name]


def load_channel(channel: Channel, *, and_subdirs: Collection[str] = ()) -> LoadedChannel:
    """Read the listing and the caches of all existing subdirs and ``and_subdirs``. Raises as read_listing does."""
    subdirs = sorted({*subdirs_of(channel.files), *and_subdirs})
    states = {subdir: read_state(channel, subdir) for subdir in subdirs}
    return LoadedChannel(channel=channel, listing=read_listing(channel), states=states)


def _folders(files: Beneath) -> list[str]:
    return [name for name, status in files.stats() if stat.S_ISDIR(status.st_mode) and not name.startswith(".")]


def read_channel_record(files: Beneath) -> ChannelRecord:
    """Read channel.json of a folder. Raises ChannelError if it is not a channel, or has a newer schema."""
    path = files.path
    record_file = path / CHANNEL_RECORD
    try:
        record = decode_json(files.read(CHANNEL_RECORD, limit_bytes=_RECORD_BYTES), ChannelRecord)
    except FileNotFoundError:
        message = f"{path}: not a channel; {record_file.relative_to(path)} is missing"
        foreign = any(name.startswith("repodata.json") for subdir in _folders(files) for name in files.names(subdir))
        others = (
            f"another tool made it; take over its packages with: channel_tools publish {path}/*/*.conda --to FOLDER"
        )
        raise ChannelError(message, hint=others if foreign else "make it with: channel_tools build") from None
    except msgspec.DecodeError as err:
        hint = "restore the file from a copy of the channel, or create a new channel with --output"
        raise ChannelError(f"{record_file}: not a channel record ({err})", hint=hint) from None
    _check_schema(record.schema, record_file)
    return record


def write_channel_record(channel: Channel, record: ChannelRecord) -> None:
    """Write channel.json."""
    channel.files.write(CHANNEL_RECORD, encode_json(record) + b"\n")


def read_listing(channel: Channel) -> Listing:
    """Read listing.json; an empty listing for a channel without one. Raises ChannelError if it is damaged."""
    path = listing_file(channel)
    try:
        listing = decode_json(channel.files.read(LISTING, limit_bytes=_LISTING_BYTES), Listing)
    except FileNotFoundError:
        return Listing()
    except msgspec.DecodeError as err:
        hint = "delete it and run the build again, which links and lists foundation packages again"
        raise ChannelError(f"{path}: not a listing ({err})", hint=hint) from None
    _check_schema(listing.schema, path)
    return listing


def write_listing(channel: Channel, listing: Listing) -> None:
    """Replace listing.json."""
    channel.files.write(LISTING, encode_json(listing) + b"\n")


def read_state(channel: Channel, subdir: str) -> SubdirState:
    """The cache of a subdir; an empty one if it is missing, has another schema or is damaged."""
    state_file = channel.state_file(subdir)
    try:
        return decode_state(channel.files.read(_state_name(subdir), limit_bytes=STATE_BYTES))
    except FileNotFoundError:
        return SubdirState()
    except msgspec.DecodeError as err:
        _log.warning("%s: unreadable (%s); all packages are read again", state_file, err)
        return SubdirState()


def decode_state(content: bytes) -> SubdirState:
    """The cache that encode_state wrote; an empty one for another schema. Raises msgspec.DecodeError."""
    state = decode_msgpack(content, SubdirState)
    return state if state.schema == STATE_SCHEMA else SubdirState()


def encode_state(state: SubdirState) -> bytes:
    """Encode the cache, without refused files whose names are no UTF-8: no index lists one, and each is read again."""
    refused = {name: file for name, file in state.records.refused.items() if escaped(name) == name}
    return msgspec.msgpack.encode(replace(state, records=replace(state.records, refused=refused)))


def write_state(channel: Channel, subdir: str, state: SubdirState) -> None:
    """Replace the cache of a subdir."""
    channel.files.write(_state_name(subdir), encode_state(state), durable=False)


def read_channeldata_stamp(channel: Channel) -> Stamp | None:
    """The digest of channeldata.json when it was last written; None if not known."""
    try:
        return decode_msgpack(channel.files.read(_CHANNELDATA, limit_bytes=_RECORD_BYTES), Stamp)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def write_channeldata_stamp(channel: Channel, stamp: Stamp) -> None:
    """Record the digest of channeldata.json."""
    channel.files.write(_CHANNELDATA, msgspec.msgpack.encode(stamp), durable=False)


def _state_name(subdir: str) -> str:
    return f"{RECORD_FOLDER}/state/{subdir}.msgpack"


def listing_file(channel: Channel) -> Path:
    """The path of the listing."""
    return channel.record_folder / "listing.json"


def _check_schema(schema: int, path: Path) -> None:
    if schema != CHANNEL_SCHEMA:
        message = f"{path}: has schema {schema}; this version of channel_tools reads schema {CHANNEL_SCHEMA}"
        raise ChannelError(
            message, hint="use the version of channel_tools that created the channel, or create a new channel"
        )
