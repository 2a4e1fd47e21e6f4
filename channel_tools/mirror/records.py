# SPDX-License-Identifier: BSD-3-Clause
"""Records of a part of a channel: read with all hotfixes in them, and written as indexes for every client.

Records are copied from the index and not made from the packages, so that a solve at the importing site sees what one at
the exporting site saw; packages in the old format are included. Over HTTP only the shards of the wanted names are
requested, if the channel has shards and not a large part of it is needed: then one whole index costs less than
thousands of requests. An index also says where the packages are, which need not be beside it (``base_url``, CEP 15).
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.content import make_channeldata
from channel_tools.channel.records import recorded_package
from channel_tools.channel.state import STATE_BYTES
from channel_tools.conda.addresses import local_path, packages_address, without_credentials
from channel_tools.conda.package import by_format, names_of_files
from channel_tools.conda.repodata import (
    REPODATA,
    REPODATA_ZST,
    RUN_EXPORTS,
    SHARD_INDEX,
    SHARD_LEVEL,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
    encode_repodata,
    encode_run_exports,
    encode_shard,
    encode_shard_index,
    unread_entries,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.document import decode_json, decode_msgpack
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.http.client import MissingError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.http.client import HttpClient

_log = logging.getLogger(__name__)
_TABLES = ("packages", "packages.conda")
_INDEX_LIMIT_BYTES = 4 << 30
_SHARD_LIMIT_BYTES = 256 << 20
_CONNECTIONS = 8
_MANY_SHARDS = 200
_LARGE_PART = 4
"""The whole index is read if more than 200 shards and more than a quarter of all are needed."""


SubdirRecords = dict[str, "JsonObject"]
"""Records of one subdir by file name; its suffix gives the package's format."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirIndex:
    """Records of a subdir of a channel, and the address of the folder that has its packages.

    The address ends with a slash. It has the credentials in the channel's address only if it is below that.
    """

    records: SubdirRecords
    folder: str


class _Info(msgspec.Struct):
    base_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Index:
    """repodata.json, its records undecoded."""

    info: _Info
    packages: dict[str, msgspec.Raw]
    packages_conda: dict[str, msgspec.Raw]


def plain_index(subdir: str, records: SubdirRecords) -> dict[str, bytes]:
    """repodata.json and run_exports.json of a subdir, by name; the other indexes can be made from them."""
    conda, old = by_format(records)
    exports = {name: row["run_exports"] for name, row in records.items() if "run_exports" in row}
    conda_exports, old_exports = by_format(exports)
    return {
        REPODATA: encode_repodata(subdir, conda, old=old),
        RUN_EXPORTS: encode_run_exports(subdir, conda_exports, old=old_exports),
    }


def derived_index(subdir: str, records: SubdirRecords, plain: Mapping[str, bytes], *, now_s: float) -> dict[str, bytes]:
    """The compressed and the sharded index of a subdir, by path in it."""
    shards = {name: _pack(content) for name, content in _shard_contents(records).items()}
    hashes = {name: hashlib.sha256(packed).hexdigest() for name, packed in shards.items()}
    files = {f"{SHARDS_FOLDER}/{hashes[name]}{SHARD_SUFFIX}": packed for name, packed in shards.items()}
    files[SHARD_INDEX] = encode_shard_index(subdir, hashes, now_s=now_s)
    files[REPODATA_ZST] = _pack(plain[REPODATA])
    return files


def channeldata(subdirs: Mapping[str, SubdirRecords]) -> bytes:
    """channeldata.json, with what records contain."""
    rows = {}
    for subdir, records in subdirs.items():
        conda, old = by_format(records)
        rows[subdir] = {name: recorded_package(row) for name, row in (old | conda).items()}
    return make_channeldata(rows)


def read_plain(files: Beneath, name: str) -> SubdirRecords:
    """The records in a repodata.json that ``plain_index`` made; empty if there is no file. Raises ChannelError."""
    path = files.path / name
    try:
        return parse_index(files.read(name, limit_bytes=STATE_BYTES))
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as err:
        hint = "import the last bundle again"
        raise ChannelError(f"{path}: the index cannot be read: {err}", hint=hint) from None


def parse_index(content: bytes, names: Collection[str] | None = None) -> SubdirRecords:
    """The records of a repodata.json for these file names (None: all). Raises msgspec.MsgspecError."""
    return _selected(_decode(content)[0], names)


def _decode(content: bytes) -> tuple[_Index, dict[str, int]]:
    """An index, and what of it is not read. Raises msgspec.MsgspecError."""
    tables = decode_json(content, dict[str, msgspec.Raw])
    others = {key: decode_json(tables.pop(key)) for key in tables.keys() - {"info", *_TABLES}}
    info = decode_json(tables["info"], _Info) if "info" in tables else _Info()
    packages, conda = (decode_json(tables[key], dict[str, msgspec.Raw]) if key in tables else {} for key in _TABLES)
    return _Index(info=info, packages=packages, packages_conda=conda), unread_entries(others)


def _name_unread(unread: Mapping[str, int], where: str) -> None:
    for key, count in unread.items():
        entries = "1 entry" if count == 1 else f"{count} entries"
        _log.warning("%s: left out %s under %r in its index, which this program does not read", where, entries, key)


def _selected(index: _Index, names: Collection[str] | None) -> SubdirRecords:
    rows = index.packages | index.packages_conda
    wanted = rows if names is None else [name for name in sorted(names) if name in rows]
    return {name: decode_json(rows[name], dict[str, object]) for name in wanted}


def _shard_contents(records: SubdirRecords) -> dict[str, bytes]:
    by_name: defaultdict[str, SubdirRecords] = defaultdict(dict)
    for file_name, row in records.items():
        by_name[str(row["name"])][file_name] = row
    parts = {name: by_format(rows) for name, rows in sorted(by_name.items())}
    return {name: encode_shard(conda, old=old) for name, (conda, old) in parts.items()}


def _pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=SHARD_LEVEL).compress(content)


def read_index(address: str, subdir: str, names: Collection[str] | None, client: HttpClient) -> SubdirIndex:
    """What the channel at ``address`` (with any credentials) lists for the files ``names`` of a subdir.

    None means all. Names that it does not list are left out. Raises ChannelError for a channel without an index,
    NetworkError, IntegrityError for a damaged index.
    """
    if names is not None and not names:
        return SubdirIndex(records={}, folder=packages_address(address, subdir, None))
    base_url, records = _read(address, subdir, names, client)
    return SubdirIndex(records=records, folder=packages_address(address, subdir, base_url))


_Found = tuple[str | None, SubdirRecords]
"""``base_url`` as the index has it, and records."""


def _read(address: str, subdir: str, names: Collection[str] | None, client: HttpClient) -> _Found:
    local = local_path(address)
    if local is not None:
        return _select(_local_index(local, subdir), names, where=f"{local / subdir}")
    base = f"{address.rstrip('/')}/{subdir}/"
    shards = _find_shards(client, address, subdir, names)
    if shards is not None and not shards.are_many:
        return shards.base_url, _from_shards(client, shards, names)
    content = _whole_index(client, base)
    if content is not None:
        return _select(content, names, where=without_credentials(base))
    if shards is None:
        raise _no_index(without_credentials(base))
    return shards.base_url, _from_shards(client, shards, names)


def _local_index(channel: Path, subdir: str) -> bytes:
    try:
        return Beneath(root=channel).read(f"{subdir}/{REPODATA}", limit_bytes=_INDEX_LIMIT_BYTES)
    except FileNotFoundError:
        raise _no_index(str(channel / subdir)) from None


def _no_index(where: str) -> ChannelError:
    return ChannelError(f"{where}: not a channel: it has no repodata.json", hint="check the channel's address")


def _select(content: bytes, names: Collection[str] | None, *, where: str) -> _Found:
    try:
        index, unread = _decode(content)
        _name_unread(unread, where)
        return index.info.base_url, _selected(index, names)
    except msgspec.MsgspecError as err:
        raise IntegrityError(f"{where}: its repodata cannot be read: {err}", hint="index the channel again") from None


class _ShardInfo(msgspec.Struct):
    shards_base_url: str
    base_url: str | None = None


class _ShardIndex(msgspec.Struct):
    """The index of shards (CEP 16): their hashes by package name."""

    info: _ShardInfo
    shards: dict[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shards:
    """The shards with the wanted names, by hash; the folder they are in, and how many it has in all.

    ``base_url`` says where the packages are, as the index has it.
    """

    base_url: str | None
    folder: str
    hashes: list[bytes]
    total: int

    @property
    def are_many(self) -> bool:
        return len(self.hashes) > _MANY_SHARDS and len(self.hashes) * _LARGE_PART > self.total


def _find_shards(client: HttpClient, address: str, subdir: str, names: Collection[str] | None) -> _Shards | None:
    """The shards of the wanted names; None if the channel has no shards."""
    base = f"{address.rstrip('/')}/{subdir}/"
    try:
        packed = client.read(base + "repodata_shards.msgpack.zst", limit_bytes=_SHARD_LIMIT_BYTES)
    except MissingError:
        return None
    try:
        index = msgspec.convert(decode_msgpack(_unpack(packed, base)), _ShardIndex)
    except msgspec.MsgspecError as err:
        message = f"{without_credentials(base)}: its sharded index cannot be read: {err}"
        raise IntegrityError(message, hint="index the channel again") from None
    wanted = index.shards if names is None else set(names_of_files(names))
    return _Shards(
        base_url=index.info.base_url,
        folder=packages_address(address, subdir, index.info.shards_base_url),
        hashes=[index.shards[name] for name in sorted(wanted) if name in index.shards],
        total=len(index.shards),
    )


def _whole_index(client: HttpClient, base: str) -> bytes | None:
    """The bytes of repodata.json; None if there is none in any form."""
    try:
        return _unpack(client.read(base + "repodata.json.zst", limit_bytes=_INDEX_LIMIT_BYTES), base)
    except MissingError:
        pass
    try:
        return client.read(base + "repodata.json", limit_bytes=_INDEX_LIMIT_BYTES)
    except MissingError:
        return None


def _from_shards(client: HttpClient, shards: _Shards, names: Collection[str] | None) -> SubdirRecords:
    with ThreadPoolExecutor(max_workers=_CONNECTIONS) as pool:
        found = list(pool.map(lambda sha256: _shard(client, shards.folder, sha256), shards.hashes))
    unread: Counter[str] = Counter()
    for _, others in found:
        unread.update(others)
    _name_unread(unread, without_credentials(shards.folder))
    rows = {name: row for shard, _ in found for name, row in shard.items() if names is None or name in names}
    return dict(sorted(rows.items()))


def _shard(client: HttpClient, folder: str, sha256: bytes) -> tuple[SubdirRecords, dict[str, int]]:
    url = f"{folder.rstrip('/')}/{sha256.hex()}.msgpack.zst"
    packed = client.read(url, limit_bytes=_SHARD_LIMIT_BYTES)
    if hashlib.sha256(packed).digest() != sha256:
        message = f"{without_credentials(url)}: the sha256 of its bytes is not the one in its name"
        raise IntegrityError(message, hint="run the same command again")
    try:
        rows = decode_msgpack(_unpack(packed, url))
        return _plain({**rows.get("packages", {}), **rows.get("packages.conda", {})}), unread_entries(rows)
    except (msgspec.MsgspecError, AttributeError, TypeError) as err:
        message = f"{without_credentials(url)}: the shard cannot be read: {err}"
        raise IntegrityError(message, hint="index the channel again") from None


def _plain(rows: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Records in the form of repodata.json, with hashes as text."""
    return {
        name: {key: value.hex() if isinstance(value, bytes) else value for key, value in row.items()}
        for name, row in rows.items()
    }


def _unpack(packed: bytes, url: str) -> bytes:
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            content: bytes = stream.read(_INDEX_LIMIT_BYTES)
    except zstandard.ZstdError as err:
        message = f"{without_credentials(url)}: cannot be decompressed: {err}"
        raise IntegrityError(
            message, hint="run it again; if that fails too, the channel must be indexed again"
        ) from None
    return content
