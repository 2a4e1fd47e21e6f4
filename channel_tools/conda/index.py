# SPDX-License-Identifier: BSD-3-Clause
"""The index of any channel: its records for some packages, with all hotfixes in them, and where the packages are.

Over HTTP only the shards of the wanted names are requested, if the channel has shards and not a large part of it is
needed: then one whole index costs less than thousands of requests. Packages need not be beside the index (``base_url``,
CEP 15).
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.addresses import local_path, packages_address, without_credentials
from channel_tools.conda.package import names_of_files
from channel_tools.conda.repodata import (
    INDEX_LIMIT_BYTES,
    REPODATA,
    REPODATA_ZST,
    SHARD_INDEX,
    SHARD_LIMIT_BYTES,
    SHARD_SUFFIX,
    Repodata,
    Shard,
    decode_repodata,
    decode_shard,
    decode_shard_index,
    unpack_index,
)
from channel_tools.system.beneath import Beneath
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, IntegrityError
from channel_tools.system.http.client import MissingError
from channel_tools.system.workers import run_in_threads

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.http.client import HttpClient

_log = logging.getLogger(__name__)
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


def parse_index(content: bytes) -> SubdirRecords:
    """The records of a repodata.json. Raises msgspec.MsgspecError."""
    return _selected(decode_repodata(content), None)


def warn_of_unread(unread: Mapping[str, int], where: str) -> None:
    """Say how many entries of the index at ``where`` are left out, as unread_entries counts them."""
    for key, count in unread.items():
        entries = counted(count, "entry", "entries")
        _log.warning("%s: left out %s under %r in its index, which this program does not read", where, entries, key)


def _selected(index: Repodata, names: Collection[str] | None) -> SubdirRecords:
    rows = index.records
    selected = rows if names is None else [name for name in sorted(names) if name in rows]
    return {name: decode_json(rows[name], dict[str, object]) for name in selected}


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
    base, local = f"{address.rstrip('/')}/{subdir}/", local_path(address)
    where = without_credentials(base) if local is None else str(local / subdir)
    # a folder's whole index is at hand, over a network shards are less to fetch
    if local is not None and (content := _whole_index(client, address, subdir)) is not None:
        return _select(content, names, where=where)
    shards = _find_shards(client, address, subdir, names)
    if shards is not None and not shards.are_many:
        return shards.base_url, _from_shards(client, shards, names)
    if local is None and (content := _whole_index(client, address, subdir)) is not None:
        return _select(content, names, where=where)
    if shards is None:
        raise ChannelError(f"{where}: not a channel: it has no repodata.json", hint="check the channel's address")
    return shards.base_url, _from_shards(client, shards, names)


def _get(client: HttpClient, base: str, name: str, *, limit_bytes: int) -> bytes | None:
    """The bytes of the file ``name`` below an address, which may be that of a folder; None if there is nothing."""
    local = local_path(base)
    try:
        if local is None:
            return client.read(f"{base.rstrip('/')}/{name}", limit_bytes=limit_bytes)
        return Beneath(root=local).read(name, limit_bytes=limit_bytes)
    except (MissingError, FileNotFoundError):
        return None


def _select(content: bytes, names: Collection[str] | None, *, where: str) -> _Found:
    try:
        index = decode_repodata(content)
        warn_of_unread(index.unread, where)
        return index.base_url, _selected(index, names)
    except msgspec.MsgspecError as err:
        raise IntegrityError(f"{where}: its repodata cannot be read: {err}", hint="index the channel again") from None


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
    packed = _get(client, address, f"{subdir}/{SHARD_INDEX}", limit_bytes=SHARD_LIMIT_BYTES)
    if packed is None:
        return None
    index = decode_shard_index(packed, without_credentials(f"{address.rstrip('/')}/{subdir}/{SHARD_INDEX}"))
    selected = index.shards if names is None else set(names_of_files(names))
    return _Shards(
        base_url=index.info.base_url,
        folder=packages_address(address, subdir, index.info.shards_base_url),
        hashes=[index.shards[name] for name in sorted(selected) if name in index.shards],
        total=len(index.shards),
    )


def _whole_index(client: HttpClient, address: str, subdir: str) -> bytes | None:
    """The bytes of repodata.json; None if there is none in any form. Of a folder, the plain one is taken first."""
    names = (REPODATA_ZST, REPODATA) if local_path(address) is None else (REPODATA, REPODATA_ZST)
    for name in names:
        content = _get(client, address, f"{subdir}/{name}", limit_bytes=INDEX_LIMIT_BYTES)
        if content is not None and name == REPODATA_ZST:
            return unpack_index(content, without_credentials(f"{address.rstrip('/')}/{subdir}/{name}"))
        if content is not None:
            return content
    return None


def _from_shards(client: HttpClient, shards: _Shards, names: Collection[str] | None) -> SubdirRecords:
    read = functools.partial(_shard, client, shards.folder)
    decoded = [shard for _hash, shard in run_in_threads(read, shards.hashes, threads=_CONNECTIONS)]
    unread: Counter[str] = Counter()
    for shard in decoded:
        unread.update(shard.unread)
    warn_of_unread(unread, without_credentials(shards.folder))
    rows = {name: row for shard in decoded for name, row in shard.records.items() if names is None or name in names}
    return dict(sorted(rows.items()))


def _shard(client: HttpClient, folder: str, sha256: bytes) -> Shard:
    name = f"{sha256.hex()}{SHARD_SUFFIX}"
    url, packed = f"{folder.rstrip('/')}/{name}", _get(client, folder, name, limit_bytes=SHARD_LIMIT_BYTES)
    if packed is None:
        message = f"{without_credentials(url)}: the channel's index names this shard, but there is none"
        raise IntegrityError(message, hint="run the same command again; if that fails too, index the channel again")
    return decode_shard(packed, sha256, without_credentials(url))
