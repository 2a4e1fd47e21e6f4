# SPDX-License-Identifier: BSD-3-Clause
"""Makes the content of a subdir's index files from its records and the channel's listing; and channeldata.json.

Nothing here depends on where a channel is. Records are
joined as text and only parsed if something changed, which makes publishing into a large channel fast.
channeldata has no specification; the fields are those that conda-index writes and conda-build and web pages read.

Sharded repodata (CEP 16): one compressed file per package name, found through a small index.

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

import msgspec
import zstandard

from channel_tools.channel.listing import hidden_packages, names_in
from channel_tools.channel.state import ShardState
from channel_tools.conda.metadata import timestamp_ms
from channel_tools.conda.package import by_format
from channel_tools.conda.repodata import (
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    RUN_EXPORTS,
    SHARD_INDEX,
    SHARD_LEVEL,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
    encode_json,
    encode_repodata,
    encode_run_exports,
    encode_shard,
    encode_shard_index,
)
from channel_tools.system.document import decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.beneath import Beneath

    Row = tuple[str, CachedPackage, JsonObject]

INDEX_FILES = (REPODATA, REPODATA_ZST, RUN_EXPORTS, SHARD_INDEX)
"""The files of every subdir. REPODATA_FROM_PACKAGES exists only if records are patched."""
_ZSTD_LEVEL = 3
"""Ten thousand records: level 3 takes 28 ms, level 9 109 ms for files that are 3 % smaller."""
_MS = 1000


_FORM = b"2\0"
"""Which form of shards a digest of ``_content`` belongs to; another number lets the next index make all of them again.

Until 2 they had ``attestations_sha256`` as bytes, at which conda fails.
"""
_SHARD_NAME = re.compile(r"[0-9a-f]{64}\.msgpack\.zst")


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirContent:
    """The content to serve for one subdir: its shards, and the index files that name them.

    ``listed`` are the packages that solves see, by file name, with their records as patched; ``removed`` the file names
    of the others. ``from_packages`` is the unpatched repodata, None when nothing is patched.
    """

    subdir: str
    listed: dict[str, CachedPackage]
    removed: tuple[str, ...]
    repodata: bytes
    from_packages: bytes | None
    shards: ShardSet

    @property
    def digest(self) -> str:
        """A fingerprint that is equal for equal content, whenever the index files were written.

        It covers the names of the shards, so that an index is written again when these take another form.
        """
        shards = "".join(shard.sha256 for _name, shard in sorted(self.shards.shards.items()))
        return _digest(self.repodata, self.from_packages or b"", shards.encode())

    def index_files(self, *, now_s: float) -> dict[str, bytes]:
        """The bytes of the index files in the order in which to write them, after the shards."""
        conda, old = by_format({name: msgspec.Raw(row.exports_json) for name, row in self.listed.items()})
        files = {
            SHARD_INDEX: encode_shard_index(
                self.subdir, {name: shard.sha256 for name, shard in self.shards.shards.items()}, now_s=now_s
            ),
            REPODATA: self.repodata,
            REPODATA_ZST: zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(self.repodata),
            RUN_EXPORTS: encode_run_exports(self.subdir, conda, old=old),
        }
        return files if self.from_packages is None else files | {REPODATA_FROM_PACKAGES: self.from_packages}


def subdir_content(
    subdir: str,
    packages: Mapping[str, CachedPackage],
    listing: Listing,
    *,
    known_shards: Mapping[str, ShardState],
    present_shards: set[str],
) -> SubdirContent:
    """The content for a subdir with these packages (by file name); pure.

    ``known_shards`` are those of the last index, by package name; ``present_shards`` the hashes of those that exist and
    need not be made again.
    """
    listed, patch = listed_rows(subdir, packages, listing), listing.patches.get(subdir)
    removed = tuple(name for name in packages if name not in listed)
    removed_names = [(packages[name].name, name) for name in removed]
    return SubdirContent(
        subdir=subdir,
        listed=listed,
        removed=removed,
        repodata=_repodata(subdir, listed, removed),
        from_packages=None if patch is None else _unpatched_repodata(subdir, packages, listing),
        shards=make_shards(listed, removed_names, known_shards, present_shards),
    )


def listed_rows(subdir: str, packages: Mapping[str, CachedPackage], listing: Listing) -> dict[str, CachedPackage]:
    """Those of a subdir's packages (by file name) that new solves see, with their records as patched."""
    hidden = hidden_packages(listing)
    unpatched = {name: row for name, row in packages.items() if f"{subdir}/{name}" not in hidden}
    patch = listing.patches.get(subdir)
    return unpatched if patch is None else _patched(unpatched, patch)


def _patched(packages: Mapping[str, CachedPackage], patch: Patch) -> dict[str, CachedPackage]:
    removed = set(patch.remove)
    listed = {name: row for name, row in packages.items() if name not in removed}
    rows = {name: listed[name] for name in patch.names() & listed.keys()}
    return listed | {name: row.patched(patch.applied(name, row.record)) for name, row in rows.items()}


def _unpatched_repodata(subdir: str, packages: Mapping[str, CachedPackage], listing: Listing) -> bytes:
    hidden = names_in(subdir, hidden_packages(listing))
    unpatched = {name: row for name, row in packages.items() if name not in hidden}
    return _repodata(subdir, unpatched, [name for name in packages if name in hidden])


def _repodata(subdir: str, listed: Mapping[str, CachedPackage], removed: Iterable[str]) -> bytes:
    conda, old = by_format({name: msgspec.Raw(row.record_json) for name, row in listed.items()})
    return encode_repodata(subdir, conda, old=old, removed=removed)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def make_channeldata(
    listed: Mapping[str, Mapping[str, CachedPackage]],
    *,
    before: bytes | None = None,
    changed: Collection[str] = (),
) -> bytes:
    """channeldata.json over all subdirs: what each package is, taken from its newest version.

    With ``before``, the channeldata.json of the last index, only the rows of the package names ``changed`` are made.
    """
    unchanged = _kept_rows(before, changed)
    by_name: defaultdict[str, list[tuple[str, CachedPackage]]] = defaultdict(list)
    for subdir, rows in sorted(listed.items()):
        for row in rows.values():
            if row.name not in unchanged:
                by_name[row.name].append((subdir, row))
    renewed = {name: msgspec.Raw(encode_json(_package_row(rows))) for name, rows in by_name.items()}
    packages = dict(sorted((unchanged | renewed).items()))  # msgspec's own sorting is slow for what is nearly in order
    body = {"channeldata_version": 1, "packages": packages, "subdirs": sorted(listed)}
    return encode_json(body) + b"\n"


class _Channeldata(msgspec.Struct):
    packages: dict[str, msgspec.Raw]


def _kept_rows(before: bytes | None, changed: Collection[str]) -> dict[str, msgspec.Raw]:
    if before is None:
        return {}
    rows = decode_json(before, _Channeldata).packages
    return {name: row for name, row in rows.items() if name not in changed}


def _package_row(packages: list[tuple[str, CachedPackage]]) -> JsonObject:
    rows = _by_age([(subdir, row, row.record) for subdir, row in packages])
    _subdir, newest, record = rows[-1]
    about = newest.about
    return {
        **about,
        "license": record.get("license") or about.get("license"),
        "run_exports": {
            str(entry["version"]): entry["run_exports"] for _, _, entry in rows if entry.get("run_exports")
        },
        "subdirs": sorted({subdir for subdir, _, _ in rows}),
        "timestamp": timestamp_ms(record.get("timestamp")) // _MS,
        "version": record["version"],
    }


def _by_age(rows: list[Row]) -> list[Row]:
    """A sort key, oldest first."""
    if len(rows) == 1:
        return rows
    from rattler import Version  # noqa: PLC0415 - slow to import, and most names have one version

    def age(row: Row) -> tuple[object, int, int]:
        record = row[2]
        return Version(str(record["version"])), _number(record["build_number"]), timestamp_ms(record.get("timestamp"))

    return sorted(rows, key=age)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


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
