# SPDX-License-Identifier: BSD-3-Clause
"""What the index files of a subdir say, made from its records and the channel's listing alone.

Nothing here knows where a channel lies, so a folder and a bucket are indexed by the same words. Records are joined as
text and only looked into where something changed: that is what makes publishing into a large channel fast.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.channeldata import make_run_exports
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_INDEX, ShardSet, make_shards, shard_index

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from channel_tools.channel.patches import Patch
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import Listing, Shard

REPODATA = "repodata.json"
REPODATA_ZST = "repodata.json.zst"
REPODATA_FROM_PACKAGES = "repodata_from_packages.json"
RUN_EXPORTS = "run_exports.json"
CHANNELDATA = "channeldata.json"
INDEX_FILES = (REPODATA, REPODATA_ZST, RUN_EXPORTS, SHARD_INDEX)
"""What every subdir has. REPODATA_FROM_PACKAGES is there only beside patched records."""
_ZSTD_LEVEL = 3
"""Ten thousand records: level 3 takes 28 ms, level 9 109 ms for files that are 3 % smaller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirContent:
    """What is to be served for one subdir: its shards, and the index files that name them.

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
        """Equal for equal content, whenever the index files were written."""
        return _digest(self.repodata, self.from_packages or b"")

    def index_files(self, *, now_s: float) -> dict[str, bytes]:
        """The bytes of the index files in the order in which to write them, after the shards."""
        files = {
            SHARD_INDEX: shard_index(self.subdir, self.shards.shards, now_s=now_s),
            REPODATA: self.repodata,
            REPODATA_ZST: zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(self.repodata),
            RUN_EXPORTS: make_run_exports(self.subdir, self.listed),
        }
        return files if self.from_packages is None else files | {REPODATA_FROM_PACKAGES: self.from_packages}


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
    hidden, prefix = _hidden(listing), f"{subdir}/"
    unpatched = {name: row for name, row in packages.items() if prefix + name not in hidden}
    patch = listing.patches.get(subdir)
    listed = unpatched if patch is None else _patched(unpatched, patch)
    removed = tuple(name for name in packages if name not in listed)
    removed_names = [(packages[name].name, name) for name in removed]
    return SubdirContent(
        subdir=subdir,
        listed=listed,
        removed=removed,
        repodata=_repodata(subdir, listed, removed),
        from_packages=None if patch is None else _repodata(subdir, unpatched, _hidden_names(hidden, prefix, packages)),
        shards=make_shards(listed, removed_names, known_shards, present_shards),
    )


def content_before(
    final: SubdirContent,
    packages: Mapping[str, CachedPackage],
    visible: Collection[str],
    patch: Patch | None,
    *,
    present_shards: set[str],
) -> SubdirContent:
    """A state on the way to ``final``, in which exactly the packages ``visible`` are listed."""
    listed = {
        name: final.listed.get(name) or _patched_row(name, row, patch)
        for name, row in packages.items()
        if name in visible
    }
    removed = tuple(name for name in packages if name not in listed)
    return SubdirContent(
        subdir=final.subdir,
        listed=listed,
        removed=removed,
        repodata=_repodata(final.subdir, listed, removed),
        from_packages=None,
        shards=make_shards(
            listed, [(packages[name].name, name) for name in removed], final.shards.shards, present_shards
        ),
    )


def not_listed(listing: Listing) -> dict[str, str]:
    """``subdir/file name`` of what new solves must not see, with the reason."""
    removed = {
        f"{subdir}/{name}": "removed by a repodata patch"
        for subdir, patch in listing.patches.items()
        for name in patch.remove
    }
    return removed | _hidden(listing)


def _hidden(listing: Listing) -> dict[str, str]:
    """As not_listed, without what a patch removes: that is still in the unpatched repodata."""
    superseded = dict.fromkeys(listing.superseded, "superseded by the foundation in force")
    retired = dict.fromkeys(listing.retired, "retired")
    yanked = {name: f"yanked: {reason}" for name, reason in listing.yanked.items()}
    return superseded | listing.hidden | retired | yanked


def _patched(packages: Mapping[str, CachedPackage], patch: Patch) -> dict[str, CachedPackage]:
    gone = set(patch.remove)
    listed = {name: row for name, row in packages.items() if name not in gone}
    return listed | {name: _patched_row(name, listed[name], patch) for name in patch.names() & listed.keys()}


def _patched_row(file_name: str, row: CachedPackage, patch: Patch | None) -> CachedPackage:
    if patch is None or file_name not in patch.names():
        return row
    return row.patched(patch.applied(file_name, row.record))


def _hidden_names(hidden: Mapping[str, str], prefix: str, packages: Mapping[str, CachedPackage]) -> tuple[str, ...]:
    return tuple(name for name in packages if prefix + name in hidden)


def _repodata(subdir: str, listed: Mapping[str, CachedPackage], removed: Iterable[str]) -> bytes:
    records = {name: msgspec.Raw(row.record_json) for name, row in listed.items()}
    body = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": records, "repodata_version": 1}
    hidden = list(removed)
    return encode_json(body | {"removed": hidden} if hidden else body)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
