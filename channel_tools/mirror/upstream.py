# SPDX-License-Identifier: BSD-3-Clause
"""What the channels that are mirrored say about packages: their records as they stand there, hotfixes and all.

Records are taken from the index and not from the packages, field by field unread, so that a solve on the far side sees
what one on the near side saw. Over HTTP only the shards of the wanted names are asked for where a channel has them,
unless a large part of it is wanted: then one whole index costs less than thousands of requests.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import msgspec
import zstandard

from channel_tools.addresses import local_path, without_credentials
from channel_tools.errors import ChannelError, IntegrityError
from channel_tools.mirror.fetch import read_small
from channel_tools.mirror.http import MissingError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.channel.archive import JsonObject
    from channel_tools.mirror.http import HttpReader

_INDEX_LIMIT_BYTES = 4 << 30
_SHARD_LIMIT_BYTES = 256 << 20
_CONNECTIONS = 8
_MANY_SHARDS = 200
_LARGE_PART = 4
"""The whole index is read for more than 200 shards that are more than a quarter of all."""


class _Index(msgspec.Struct):
    """repodata.json, its records undecoded."""

    packages: dict[str, msgspec.Raw] = {}
    packages_conda: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="packages.conda")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirRecords:
    """Records of one subdir, by file name: of ``.conda`` packages, and of those in the old format."""

    conda: dict[str, JsonObject] = field(default_factory=dict)
    old: dict[str, JsonObject] = field(default_factory=dict)

    def __contains__(self, file_name: str) -> bool:
        return file_name in self.conda or file_name in self.old

    def get(self, file_name: str) -> JsonObject | None:
        """The record of a file."""
        return self.conda.get(file_name) or self.old.get(file_name)

    @property
    def all(self) -> dict[str, JsonObject]:
        """All records by file name."""
        return {**self.old, **self.conda}


def read_records(address: str, subdir: str, names: Collection[str], reader: HttpReader) -> SubdirRecords:
    """The records that the channel at ``address`` (with any credentials) lists for the files ``names`` of a subdir.

    What it does not list is left out. Raises ChannelError for a channel without an index, NetworkError, IntegrityError
    for a damaged index.
    """
    if not names:
        return SubdirRecords()
    local = local_path(address)
    if local is not None:
        return _select(_local_index(local / subdir), names, where=f"{local / subdir}")
    base = f"{address.rstrip('/')}/{subdir}/"
    shards = _find_shards(reader, base, names)
    if shards is not None and not shards.are_many:
        return _from_shards(reader, shards, names)
    content = _whole_index(reader, base)
    if content is not None:
        return _select(content, names, where=without_credentials(base))
    if shards is None:
        raise _no_index(without_credentials(base))
    return _from_shards(reader, shards, names)


def package_name_of(file_name: str) -> str:
    """The package that a file name begins with (``NAME-VERSION-BUILD.conda``)."""
    return file_name.rsplit("-", 2)[0]


def _local_index(folder: Path) -> bytes:
    try:
        return (folder / "repodata.json").read_bytes()
    except FileNotFoundError:
        raise _no_index(str(folder)) from None


def _no_index(where: str) -> ChannelError:
    return ChannelError(f"{where}: no channel here: it has no repodata.json", hint="check the channel's address")


def _select(content: bytes, names: Collection[str], *, where: str) -> SubdirRecords:
    try:
        index = msgspec.json.decode(content, type=_Index)
        return SubdirRecords(conda=_decoded(index.packages_conda, names), old=_decoded(index.packages, names))
    except msgspec.MsgspecError as err:
        raise IntegrityError(f"{where}: its repodata cannot be read: {err}", hint="index the channel again") from None


def _decoded(rows: Mapping[str, msgspec.Raw], names: Collection[str]) -> dict[str, JsonObject]:
    return {name: msgspec.json.decode(rows[name], type=dict[str, object]) for name in sorted(names) if name in rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shards:
    """The shards of the wanted names, by hash, where they lie, and of how many they are."""

    folder: str
    wanted: list[bytes]
    total: int

    @property
    def are_many(self) -> bool:
        return len(self.wanted) > _MANY_SHARDS and len(self.wanted) * _LARGE_PART > self.total


def _find_shards(reader: HttpReader, base: str, names: Collection[str]) -> _Shards | None:
    """None where the channel has no shards."""
    try:
        packed = read_small(reader, base + "repodata_shards.msgpack.zst", limit_bytes=_SHARD_LIMIT_BYTES)
    except MissingError:
        return None
    try:
        index = msgspec.msgpack.decode(_unpack(packed, base))
        shards: dict[str, bytes] = index["shards"]
        folder = urljoin(base, str(index["info"]["shards_base_url"]))
        wanted = [shards[name] for name in sorted({package_name_of(name) for name in names}) if name in shards]
    except (msgspec.MsgspecError, KeyError, TypeError) as err:
        message = f"{without_credentials(base)}: its sharded index cannot be read: {err}"
        raise IntegrityError(message, hint="index the channel again") from None
    return _Shards(folder=folder, wanted=wanted, total=len(shards))


def _whole_index(reader: HttpReader, base: str) -> bytes | None:
    """The bytes of repodata.json; None where there is none in any form."""
    try:
        return _unpack(read_small(reader, base + "repodata.json.zst", limit_bytes=_INDEX_LIMIT_BYTES), base)
    except MissingError:
        pass
    try:
        return read_small(reader, base + "repodata.json", limit_bytes=_INDEX_LIMIT_BYTES)
    except MissingError:
        return None


def _from_shards(reader: HttpReader, shards: _Shards, names: Collection[str]) -> SubdirRecords:
    with ThreadPoolExecutor(max_workers=_CONNECTIONS) as pool:
        found = list(pool.map(lambda sha256: _shard(reader, shards.folder, sha256), shards.wanted))
    conda = {name: row for shard in found for name, row in shard.conda.items() if name in names}
    old = {name: row for shard in found for name, row in shard.old.items() if name in names}
    return SubdirRecords(conda=dict(sorted(conda.items())), old=dict(sorted(old.items())))


def _shard(reader: HttpReader, folder: str, sha256: bytes) -> SubdirRecords:
    url = f"{folder.rstrip('/')}/{sha256.hex()}.msgpack.zst"
    packed = read_small(reader, url, limit_bytes=_SHARD_LIMIT_BYTES)
    if hashlib.sha256(packed).digest() != sha256:
        raise IntegrityError(f"{without_credentials(url)}: other bytes than its name says", hint="run it again")
    try:
        rows = msgspec.msgpack.decode(_unpack(packed, url))
        return SubdirRecords(conda=_plain(rows.get("packages.conda", {})), old=_plain(rows.get("packages", {})))
    except (msgspec.MsgspecError, AttributeError, TypeError) as err:
        message = f"{without_credentials(url)}: the shard cannot be read: {err}"
        raise IntegrityError(message, hint="index the channel again") from None


def _plain(rows: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Records as repodata.json has them: hashes as text."""
    return {
        name: {key: value.hex() if isinstance(value, bytes) else value for key, value in row.items()}
        for name, row in rows.items()
    }


def _unpack(packed: bytes, url: str) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            content: bytes = stream.read(_INDEX_LIMIT_BYTES)
    except zstandard.ZstdError as err:
        message = f"{without_credentials(url)}: an index there cannot be unpacked: {err}"
        raise IntegrityError(message, hint="run it again; if it stays so, the channel must be indexed again") from None
    return content
