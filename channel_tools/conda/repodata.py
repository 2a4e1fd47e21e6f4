# SPDX-License-Identifier: BSD-3-Clause
"""The index files of a channel as bytes: repodata (CEP 36), run_exports (CEP 12) and shards (CEP 16).

Records are mappings, or ``msgspec.Raw`` where they are JSON already and need not be looked into. The same records give
the same bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.system.document import convert, decode_json, decode_msgpack
from channel_tools.system.errors import IntegrityError
from channel_tools.system.files import read_at_most

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from channel_tools.conda.contents import JsonObject

REPODATA = "repodata.json"
REPODATA_ZST = "repodata.json.zst"
REPODATA_FROM_PACKAGES = "repodata_from_packages.json"
RUN_EXPORTS = "run_exports.json"
CHANNELDATA = "channeldata.json"
SHARD_INDEX = "repodata_shards.msgpack.zst"
SHARDS_FOLDER = "shards"
SHARD_SUFFIX = ".msgpack.zst"
SHARD_LEVEL = 9
"""The zstd level of shards, which are written once and read often."""
SHARD_BYTES = ("md5", "sha256")
"""The fields that are bytes in shards; CEP 16 names these alone, and readers turn no others back into text."""


INDEX_LIMIT_BYTES = 4 << 30
"""What is read of an index, packed or not."""
SHARD_LIMIT_BYTES = 64 << 20
"""What is read of a shard or of the index of shards, packed or not: the largest of conda-forge have 3 MB. Values take
fifty times their bytes when they are decoded, and many shards are read at once."""
_INDEX_AGAIN = "index the channel again"

_READ_KEYS = frozenset({"info", "packages", "packages.conda", "removed", "repodata_version", "signatures"})
"""The keys of an index that are read here, or list no packages (``signatures`` are conda's earlier content trust)."""


def unread_entries(index: Mapping[str, object]) -> dict[str, int]:
    """The number of entries in repodata or a shard under each key that is not read, such as ``v3`` (CEP 48)."""
    counts = {key: _entries(value) for key, value in sorted(index.items()) if key not in _READ_KEYS}
    return {key: count for key, count in counts.items() if count}


def _entries(value: object) -> int:
    """The entries of a table of packages, or of tables by format as in ``v3``; 1 for any other value."""
    if not isinstance(value, dict):
        return len(value) if isinstance(value, list) else int(bool(value))
    if all(
        isinstance(entries, dict) and all(isinstance(row, dict) for row in entries.values())
        for entries in value.values()
    ):
        return sum(len(table) for table in value.values())
    return len(value)


def encode_json(value: object) -> bytes:
    """Encode JSON as in channels: sorted keys, one line, UTF-8."""
    return msgspec.json.encode(value, order="sorted")


def encode_repodata(
    subdir: str, records: Mapping[str, object], *, old: Mapping[str, object] | None = None, removed: Iterable[str] = ()
) -> bytes:
    """repodata.json: ``records`` of ``.conda`` files by file name, ``old`` of those of the old format.

    ``removed`` are names of files that exist but are not listed.
    """
    body = {"info": {"subdir": subdir}, "packages": old or {}, "packages.conda": records, "repodata_version": 1}
    hidden = list(removed)
    return encode_json(body | {"removed": hidden} if hidden else body)


def encode_run_exports(subdir: str, exports: Mapping[str, object], *, old: Mapping[str, object] | None = None) -> bytes:
    """run_exports.json: the run_exports of ``.conda`` files by file name, ``old`` of those of the old format."""
    body = {
        "info": {"subdir": subdir, "version": 1},
        "packages": {name: {"run_exports": value} for name, value in (old or {}).items()},
        "packages.conda": {name: {"run_exports": value} for name, value in exports.items()},
    }
    return encode_json(body) + b"\n"


def encode_shard(
    records: Mapping[str, JsonObject],
    *,
    old: Mapping[str, JsonObject] | None = None,
    removed: Iterable[str] = (),
) -> bytes:
    """The plain bytes of the shard of one package name; ``removed`` are the file names no longer listed."""
    shard = {
        "packages": {name: _with_plain_hashes(record) for name, record in (old or {}).items()},
        "packages.conda": {name: _with_plain_hashes(record) for name, record in records.items()},
        "removed": sorted(removed),
    }
    return msgspec.msgpack.encode(shard, order="sorted")


def encode_shard_index(subdir: str, shards: Mapping[str, str], *, now_s: float) -> bytes:
    """The packed index of the shards: package names to the sha256 of each, with addresses relative to the subdir."""
    info = {
        "subdir": subdir,
        "base_url": "",
        "shards_base_url": f"./{SHARDS_FOLDER}/",
        "created_at": datetime.fromtimestamp(now_s, tz=UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    hashes = {name: bytes.fromhex(sha256) for name, sha256 in sorted(shards.items())}
    index = msgspec.msgpack.encode({"info": info, "shards": hashes}, order="sorted")
    return zstandard.ZstdCompressor(level=SHARD_LEVEL).compress(index)


def _with_plain_hashes(record: JsonObject) -> JsonObject:
    return record | {key: bytes.fromhex(str(record[key])) for key in SHARD_BYTES if key in record}


class _Info(msgspec.Struct):
    base_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Repodata:
    """A repodata.json: its records by file name, undecoded, and the rest as in ShardIndex and Shard."""

    base_url: str | None
    records: dict[str, msgspec.Raw]
    removed: tuple[str, ...]
    unread: Mapping[str, int]


def decode_repodata(content: bytes) -> Repodata:
    """Read a repodata.json. Raises msgspec.MsgspecError."""
    tables = decode_json(content, dict[str, msgspec.Raw])
    info, packages, conda, removed = (
        tables.pop(key, None) for key in ("info", "packages", "packages.conda", "removed")
    )
    records: dict[str, msgspec.Raw] = {}
    for table in (packages, conda):
        records |= {} if table is None else decode_json(table, dict[str, msgspec.Raw])
    return Repodata(
        base_url=None if info is None else decode_json(info, _Info).base_url,
        records=records,
        removed=() if removed is None else tuple(decode_json(removed, list[str])),
        unread=unread_entries({key: decode_json(value) for key, value in tables.items()}),
    )


class ShardInfo(msgspec.Struct):
    """Where the shards and the packages are, relative to the index or not."""

    shards_base_url: str
    base_url: str | None = None


class ShardIndex(msgspec.Struct):
    """The index of shards: the sha256 of each by package name."""

    info: ShardInfo
    shards: dict[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The records of one package name, in the form of repodata.json, by file name.

    ``removed`` are the names of files that are no longer listed, ``unread`` as unread_entries counts them.
    """

    records: dict[str, JsonObject]
    removed: tuple[str, ...]
    unread: Mapping[str, int]


def unpack_index(packed: bytes, where: str, *, limit_bytes: int = INDEX_LIMIT_BYTES) -> bytes:
    """The bytes of an index or shard that is packed with zstd.

    Raises IntegrityError, which names ``where`` it is, if it is damaged, or unpacks to more than ``limit_bytes`` or
    than there is memory for.
    """
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            content = read_at_most(stream, limit_bytes + 1)
    except zstandard.ZstdError as err:
        hint = "run it again; if that fails too, the channel must be indexed again"
        raise IntegrityError(f"{where}: cannot be decompressed: {err}", hint=hint) from None
    except MemoryError:
        raise IntegrityError(f"{where}: unpacks to more than this process has memory for", hint=_INDEX_AGAIN) from None
    if len(content) > limit_bytes:
        message = f"{where}: unpacks to more than the {limit_bytes} bytes that are read of it"
        raise IntegrityError(message, hint=_INDEX_AGAIN)
    return content


def decode_shard_index(packed: bytes, where: str) -> ShardIndex:
    """Read a packed index of shards. Raises IntegrityError, which names ``where`` it is."""
    try:
        return convert(decode_msgpack(unpack_index(packed, where, limit_bytes=SHARD_LIMIT_BYTES)), ShardIndex)
    except msgspec.MsgspecError as err:
        raise IntegrityError(f"{where}: the sharded index cannot be read: {err}", hint=_INDEX_AGAIN) from None


def decode_shard(packed: bytes, sha256: bytes, where: str) -> Shard:
    """Read a packed shard, whose name is ``sha256``. Raises IntegrityError, which names ``where`` it is."""
    if hashlib.sha256(packed).digest() != sha256:
        message = f"{where}: the sha256 of its bytes is not the one in its name"
        raise IntegrityError(message, hint="run the same command again")
    try:
        tables = decode_msgpack(unpack_index(packed, where, limit_bytes=SHARD_LIMIT_BYTES))
        records = {**tables.get("packages", {}), **tables.get("packages.conda", {})}
        return Shard(
            records={
                name: {key: value.hex() if isinstance(value, bytes) else value for key, value in record.items()}
                for name, record in records.items()
            },
            removed=tuple(map(str, tables.get("removed") or ())),
            unread=unread_entries(tables),
        )
    except (msgspec.MsgspecError, AttributeError, TypeError) as err:
        raise IntegrityError(f"{where}: the shard cannot be read: {err}", hint=_INDEX_AGAIN) from None
