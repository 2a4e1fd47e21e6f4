# SPDX-License-Identifier: BSD-3-Clause
"""Records of a part of a channel, and its indexes, written from the records of the whole and readable by every client.

Unlike the channel stage's own index this one never looks at packages, and it takes those of the old format, too: what a
third-party channel says about its packages is passed on, not judged.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.content import make_channeldata
from channel_tools.channel.records import recorded_package
from channel_tools.conda.repodata import (
    CHANNELDATA,
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
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.conda.contents import JsonObject


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


def plain_index(subdir: str, records: SubdirRecords) -> dict[str, bytes]:
    """repodata.json and run_exports.json of a subdir, by name: all that the other indexes can be made from."""
    return {
        REPODATA: encode_repodata(subdir, records.conda, old=records.old),
        RUN_EXPORTS: encode_run_exports(subdir, _run_exports(records.conda), old=_run_exports(records.old)),
    }


def derived_index(subdir: str, records: SubdirRecords, plain: Mapping[str, bytes], *, now_s: float) -> dict[str, bytes]:
    """The packed and the sharded index of a subdir, by path in it."""
    shards = {name: _pack(content) for name, content in _shard_contents(records).items()}
    hashes = {name: hashlib.sha256(packed).hexdigest() for name, packed in shards.items()}
    files = {f"{SHARDS_FOLDER}/{hashes[name]}{SHARD_SUFFIX}": packed for name, packed in shards.items()}
    files[SHARD_INDEX] = encode_shard_index(subdir, hashes, now_s=now_s)
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
        return parse_index(path.read_bytes())
    except FileNotFoundError:
        return SubdirRecords()
    except msgspec.MsgspecError as err:
        hint = "import the last bundle again"
        raise ChannelError(f"{path}: the index cannot be read: {err}", hint=hint) from None


def parse_index(content: bytes, names: Collection[str] | None = None) -> SubdirRecords:
    """The records of a repodata.json for these file names (None: all), others unread. Raises msgspec.MsgspecError."""
    index = decode_json(content, _Index)
    return SubdirRecords(conda=_decoded(index.packages_conda, names), old=_decoded(index.packages, names))


def _decoded(rows: Mapping[str, msgspec.Raw], names: Collection[str] | None) -> dict[str, JsonObject]:
    wanted = rows if names is None else [name for name in sorted(names) if name in rows]
    return {name: decode_json(rows[name], dict[str, object]) for name in wanted}


def _run_exports(records: Mapping[str, JsonObject]) -> dict[str, object]:
    return {name: row["run_exports"] for name, row in records.items() if "run_exports" in row}


def _shard_contents(records: SubdirRecords) -> dict[str, bytes]:
    by_name: defaultdict[str, tuple[dict[str, JsonObject], dict[str, JsonObject]]] = defaultdict(lambda: ({}, {}))
    for number, rows in enumerate((records.conda, records.old)):
        for file_name, row in rows.items():
            by_name[str(row["name"])][number][file_name] = row
    return {name: encode_shard(conda, old=old) for name, (conda, old) in sorted(by_name.items())}


def _pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=SHARD_LEVEL).compress(content)
