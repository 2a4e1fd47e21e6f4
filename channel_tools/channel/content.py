# SPDX-License-Identifier: BSD-3-Clause
"""Makes the content of a subdir's index files from its records and the channel's listing; and channeldata.json.

Nothing here depends on where a channel is. Records are
joined as text and only parsed if something changed, which makes publishing into a large channel fast.
channeldata has no specification; the fields are those that conda-index writes and conda-build and web pages read.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.listing import hidden_packages, names_in
from channel_tools.channel.shards import ShardSet, make_shards
from channel_tools.conda.metadata import timestamp_ms
from channel_tools.conda.package import by_format
from channel_tools.conda.repodata import (
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    RUN_EXPORTS,
    SHARD_INDEX,
    encode_json,
    encode_repodata,
    encode_run_exports,
    encode_shard_index,
)
from channel_tools.system.document import decode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import ShardState
    from channel_tools.conda.contents import JsonObject

    Row = tuple[str, CachedPackage, JsonObject]

INDEX_FILES = (REPODATA, REPODATA_ZST, RUN_EXPORTS, SHARD_INDEX)
"""The files of every subdir. REPODATA_FROM_PACKAGES exists only if records are patched."""
_ZSTD_LEVEL = 3
"""Ten thousand records: level 3 takes 28 ms, level 9 109 ms for files that are 3 % smaller."""
_MS = 1000


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
