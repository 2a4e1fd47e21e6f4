# SPDX-License-Identifier: BSD-3-Clause
"""Reads the index of a subdir that another tool made: repodata.json, its packed form, or shards (CEP 16)."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.conda.addresses import local_path, packages_address, without_credentials
from channel_tools.conda.repodata import (
    INDEX_LIMIT_BYTES,
    REPODATA,
    REPODATA_ZST,
    SHARD_INDEX,
    SHARD_SUFFIX,
    decode_repodata,
    decode_shard,
    decode_shard_index,
    unpack_index,
)
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.beneath import Beneath

_HINT = "write it again with the tool that made the channel, then adopt it"


@dataclass(frozen=True, kw_only=True, slots=True)
class FormerIndex:
    """The records by file name, the names of files that are not listed any more, and ``base_url`` as it stands there.

    ``unread`` counts the entries under each key that is not read.
    """

    base_url: str | None
    records: Mapping[str, JsonObject]
    removed: tuple[str, ...]
    unread: Mapping[str, int]


def read_former(files: Beneath) -> FormerIndex | None:
    """The index of a subdir's folder, from the first of its forms that is there; None if there is none.

    Raises IntegrityError for one that is damaged, ChannelError for shards that are not below the folder.
    """
    return read_plain(files, REPODATA, REPODATA_ZST) or _read_shards(files)


def read_plain(files: Beneath, *names: str) -> FormerIndex | None:
    """The first of the indexes that exists, packed or not; None if there is none. Raises IntegrityError."""
    for name in names:
        path = files.path / name
        try:
            content = files.read(name, limit_bytes=INDEX_LIMIT_BYTES)
        except FileNotFoundError:
            continue
        if name == REPODATA_ZST:
            content = unpack_index(content, str(path))
        try:
            index = decode_repodata(content)
            records = {name: decode_json(row, dict[str, object]) for name, row in index.records.items()}
        except msgspec.MsgspecError as err:
            raise IntegrityError(f"{path}: the index cannot be read: {err}", hint=_HINT) from None
        return FormerIndex(base_url=index.base_url, records=records, removed=index.removed, unread=index.unread)
    return None


def _read_shards(files: Beneath) -> FormerIndex | None:
    folder = Path(os.path.normpath(files.path.absolute()))
    path = folder / SHARD_INDEX
    try:
        index = decode_shard_index(files.read(SHARD_INDEX, limit_bytes=INDEX_LIMIT_BYTES), str(path))
    except FileNotFoundError:
        return None
    address = packages_address(folder.parent.as_uri(), folder.name, index.info.shards_base_url)
    shard_folder = local_path(address)
    if shard_folder is None or not shard_folder.is_relative_to(folder):
        message = f"{path}: its shards are at {without_credentials(address)}"
        raise ChannelError(message, hint="adopt a folder that has the shards or a repodata.json, or mirror the channel")
    records: dict[str, JsonObject] = {}
    removed: list[str] = []
    unread: Counter[str] = Counter()
    for name, sha256 in sorted(index.shards.items()):
        file = shard_folder / f"{sha256.hex()}{SHARD_SUFFIX}"
        try:
            content = files.read(str(file.relative_to(folder)), limit_bytes=INDEX_LIMIT_BYTES)
            shard = decode_shard(content, sha256, str(file))
        except FileNotFoundError:
            raise IntegrityError(f"{file}: is missing, and {path} names it for {name}", hint=_HINT) from None
        records |= shard.records
        removed += shard.removed
        unread.update(shard.unread)
    return FormerIndex(base_url=index.info.base_url, records=records, removed=tuple(removed), unread=unread)
