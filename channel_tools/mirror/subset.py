# SPDX-License-Identifier: BSD-3-Clause
"""The indexes of a part of a channel, written from the records of the whole: readable by every client as it stands.

Unlike the channel stage's own index this one never looks at packages, and it takes those of the old format, too: what a
foreign channel says about its packages is passed on, not judged.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.channeldata import make_channeldata
from channel_tools.channel.content import CHANNELDATA, REPODATA, REPODATA_ZST, RUN_EXPORTS
from channel_tools.channel.records import encode_json, recorded_package
from channel_tools.channel.shards import SHARD_INDEX, SHARD_SUFFIX, SHARDS_FOLDER, shard_index
from channel_tools.channel.state import Shard
from channel_tools.errors import ChannelError
from channel_tools.mirror.upstream import SubdirRecords

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.channel.archive import JsonObject

_ZSTD_LEVEL = 9


def plain_index(subdir: str, records: SubdirRecords) -> dict[str, bytes]:
    """repodata.json and run_exports.json of a subdir, by name: all that the other indexes can be made from."""
    repodata = {
        "info": {"subdir": subdir},
        "packages": records.old,
        "packages.conda": records.conda,
        "repodata_version": 1,
    }
    exports = {
        "info": {"subdir": subdir, "version": 1},
        "packages": _run_exports(records.old),
        "packages.conda": _run_exports(records.conda),
    }
    return {REPODATA: encode_json(repodata), RUN_EXPORTS: encode_json(exports) + b"\n"}


def derived_index(subdir: str, records: SubdirRecords, plain: Mapping[str, bytes], *, now_s: float) -> dict[str, bytes]:
    """The packed and the sharded index of a subdir, by path in it."""
    shards = {name: _pack(content) for name, content in _shard_contents(records).items()}
    made = {name: Shard(content="", sha256=hashlib.sha256(packed).hexdigest()) for name, packed in shards.items()}
    files = {f"{SHARDS_FOLDER}/{made[name].sha256}{SHARD_SUFFIX}": packed for name, packed in shards.items()}
    files[SHARD_INDEX] = shard_index(subdir, made, now_s=now_s)
    files[REPODATA_ZST] = _pack(plain[REPODATA])
    return files


def channeldata(subdirs: Mapping[str, SubdirRecords]) -> dict[str, bytes]:
    """channeldata.json, as far as records tell."""
    rows = {
        subdir: {name: recorded_package(row) for name, row in records.all.items()}
        for subdir, records in subdirs.items()
    }
    return {CHANNELDATA: make_channeldata(rows)}


def read_plain(path: Path) -> SubdirRecords:
    """The records in a repodata.json that ``plain_index`` made; none where there is no file. Raises ChannelError."""
    try:
        return parse_plain(path.read_bytes())
    except FileNotFoundError:
        return SubdirRecords()
    except msgspec.MsgspecError as err:
        hint = "import the last bundle again"
        raise ChannelError(f"{path}: the index cannot be read: {err}", hint=hint) from None


def parse_plain(content: bytes) -> SubdirRecords:
    """As read_plain. Raises msgspec.MsgspecError."""
    index = msgspec.json.decode(content, type=_Repodata)
    return SubdirRecords(conda=index.packages_conda, old=index.packages)


class _Repodata(msgspec.Struct):
    packages: dict[str, dict[str, object]] = {}
    packages_conda: dict[str, dict[str, object]] = msgspec.field(default_factory=dict, name="packages.conda")


def _run_exports(records: Mapping[str, JsonObject]) -> JsonObject:
    return {name: {"run_exports": row["run_exports"]} for name, row in records.items() if "run_exports" in row}


def _shard_contents(records: SubdirRecords) -> dict[str, bytes]:
    by_name: defaultdict[str, dict[str, dict[str, JsonObject]]] = defaultdict(
        lambda: {"packages": {}, "packages.conda": {}}
    )
    for kind, rows in (("packages", records.old), ("packages.conda", records.conda)):
        for file_name, row in rows.items():
            hashes: JsonObject = {key: bytes.fromhex(str(row[key])) for key in ("md5", "sha256") if key in row}
            by_name[str(row["name"])][kind][file_name] = row | hashes
    encoder = msgspec.msgpack.Encoder(order="sorted")
    return {name: encoder.encode({**rows, "removed": []}) for name, rows in sorted(by_name.items())}


def _pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(content)
