# SPDX-License-Identifier: BSD-3-Clause
"""Sharded repodata (CEP 16): one compressed file per package name, found through a small index.

A shard is named after the hash of its bytes, so it is written once and never changed. Shards that no index names any
more are kept for a grace time, since a client may have an index that still names them.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zstandard

from channel_tools.channel.state import ShardState
from channel_tools.conda.package import by_format
from channel_tools.conda.repodata import SHARD_LEVEL, SHARD_SUFFIX, SHARDS_FOLDER, encode_shard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.channel.records import CachedPackage
    from channel_tools.system.beneath import Beneath

_FORM = b"2\0"
"""Which form of shards a digest of ``_content`` belongs to; another number lets the next index make all of them again.

Until 2 they had ``attestations_sha256`` as bytes, at which conda fails.
"""
_SHARD_NAME = re.compile(r"[0-9a-f]{64}\.msgpack\.zst")


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardSet:
    """All shards of a subdir by package name, and the bytes of those that are not on disk."""

    shards: dict[str, ShardState]
    new: dict[str, bytes]


def make_shards(
    records: Mapping[str, CachedPackage],
    removed: Sequence[tuple[str, str]],
    known: Mapping[str, ShardState],
    on_disk: set[str],
) -> ShardSet:
    """Shards for ``records`` (by file name); ``removed`` are (package name, file name) no longer listed.

    A shard is made only if its records changed since ``known`` or its file is not ``on_disk``.
    """
    files, hidden = _by_name(records, removed)
    compressor = zstandard.ZstdCompressor(level=SHARD_LEVEL)
    shards: dict[str, ShardState] = {}
    new: dict[str, bytes] = {}
    for name in sorted(files.keys() | hidden.keys()):
        rows, hidden_rows = files.get(name, []), hidden.get(name, [])
        # channeldata's row has strings that the shard does not have
        digest = hashlib.sha256(_FORM)
        for file_name in rows:
            row = records[file_name]
            digest.update(b"%b\0%b\0%b\0" % (file_name.encode(), row.record_json, row.about_json))
        for file_name in hidden_rows:
            digest.update(b"-%b\0" % file_name.encode())
        content = digest.hexdigest()
        shard = known.get(name)
        if shard is None or shard.content != content or shard.sha256 not in on_disk:
            conda, old = by_format({row: records[row].record for row in rows})
            packed = compressor.compress(encode_shard(conda, old=old, removed=hidden_rows))
            shard = ShardState(content=content, sha256=hashlib.sha256(packed).hexdigest())
            if shard.sha256 not in on_disk:
                new[shard.sha256] = packed
        shards[name] = shard
    return ShardSet(shards=shards, new=new)


def _by_name(
    records: Mapping[str, CachedPackage], removed: Sequence[tuple[str, str]]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """File names by package name: of packages that are listed, and of those that no longer are."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for file_name, row in records.items():
        files[row.name].append(file_name)
    hidden: defaultdict[str, list[str]] = defaultdict(list)
    for name, file_name in removed:
        hidden[name].append(file_name)
    return files, hidden


def shards_on_disk(subdir: Beneath) -> set[str]:
    """The hashes that shard files of the subdir's folder are named after."""
    entries = subdir.stats(SHARDS_FOLDER)
    return {
        name.removesuffix(SHARD_SUFFIX)
        for name, status in entries
        if _SHARD_NAME.fullmatch(name) and stat.S_ISREG(status.st_mode)
    }


def write_shards(subdir: Beneath, new: Mapping[str, bytes]) -> None:
    """Write shard files, each atomically; many are flushed to the disk together."""
    if new:
        subdir.write_all((f"{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}", packed) for sha256, packed in new.items())


def remove_stale_shards(
    subdir: Beneath, unused: set[str], stale_since_s: Mapping[str, float], *, now_s: float, grace_s: float
) -> dict[str, float]:
    """Delete shards ``unused`` for ``grace_s`` seconds; returns since when (epoch seconds) the others are unused."""
    remaining = {}
    for sha256 in sorted(unused):
        since = min(stale_since_s.get(sha256, now_s), now_s)
        if now_s - since >= grace_s:
            subdir.remove(f"{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}")
        else:
            remaining[sha256] = since
    return remaining
