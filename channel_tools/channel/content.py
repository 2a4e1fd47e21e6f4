# SPDX-License-Identifier: BSD-3-Clause
"""What the index files of a subdir say, made from its records and the channel's listing alone.

Nothing here knows where a channel lies, so a folder and a bucket are indexed by the same words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard

from channel_tools.channel.channeldata import make_run_exports
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_INDEX, ShardSet, make_shards, shard_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.channel.archive import JsonObject
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import Listing, Shard

REPODATA = "repodata.json"
REPODATA_ZST = "repodata.json.zst"
RUN_EXPORTS = "run_exports.json"
CHANNELDATA = "channeldata.json"
INDEX_FILES = (REPODATA, REPODATA_ZST, RUN_EXPORTS, SHARD_INDEX)
_ZSTD_LEVEL = 9


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirContent:
    """What is to be served for one subdir: its shards, and the index files that name them."""

    subdir: str
    listed: dict[str, JsonObject]
    repodata: bytes
    shards: ShardSet

    @property
    def digest(self) -> str:
        """Equal for equal content, whenever the index files were written."""
        return _digest(self.repodata, encode_json(self.shards.shards))

    def index_files(self, *, now_s: float) -> dict[str, bytes]:
        """The bytes of INDEX_FILES in the order in which to write them, after the shards."""
        run_exports = encode_json(make_run_exports(self.subdir, self.listed)) + b"\n"
        return {
            SHARD_INDEX: shard_index(self.subdir, self.shards.shards, now_s=now_s),
            REPODATA: self.repodata,
            REPODATA_ZST: zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(self.repodata),
            RUN_EXPORTS: run_exports,
        }


def subdir_content(
    subdir: str,
    packages: Mapping[str, CachedPackage],
    listing: Listing,
    *,
    known_shards: Mapping[str, Shard],
    present_shards: set[str],
) -> SubdirContent:
    """What a subdir with these packages (by file name) has to serve; pure.

    ``known_shards`` are those of the last index, by package name; ``present_shards`` the hashes of those that are in
    place and need not be made again.
    """
    hidden = not_listed(listing)
    removed = [name for name in packages if f"{subdir}/{name}" in hidden]
    listed = {name: row.record for name, row in packages.items() if f"{subdir}/{name}" not in hidden}
    removed_names = [(str(packages[name].record["name"]), name) for name in removed]
    return SubdirContent(
        subdir=subdir,
        listed=listed,
        repodata=encode_json(_repodata(subdir, listed, removed)),
        shards=make_shards(listed, removed_names, known_shards, present_shards),
    )


def not_listed(listing: Listing) -> dict[str, str]:
    """``subdir/file name`` of what new solves must not see, with the reason."""
    superseded = dict.fromkeys(listing.superseded, "superseded by the foundation in force")
    return superseded | listing.hidden


def _repodata(subdir: str, listed: Mapping[str, JsonObject], removed: list[str]) -> JsonObject:
    body: JsonObject = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": listed, "repodata_version": 1}
    return body | {"removed": removed} if removed else body


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
