# SPDX-License-Identifier: BSD-3-Clause
"""Records of a part of a channel, written as indexes for every client.

Records are copied from the channel's index and not made from the packages, so that a solve at the importing site sees
what one at the exporting site saw; packages in the old format are included.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.content import make_channeldata
from channel_tools.channel.records import recorded_package
from channel_tools.channel.state import STATE_BYTES
from channel_tools.conda.index import SubdirRecords, parse_index
from channel_tools.conda.package import by_format
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
)
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.system.beneath import Beneath


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


def _shard_contents(records: SubdirRecords) -> dict[str, bytes]:
    by_name: defaultdict[str, SubdirRecords] = defaultdict(dict)
    for file_name, row in records.items():
        by_name[str(row["name"])][file_name] = row
    parts = {name: by_format(rows) for name, rows in sorted(by_name.items())}
    return {name: encode_shard(conda, old=old) for name, (conda, old) in parts.items()}


def _pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=SHARD_LEVEL).compress(content)
