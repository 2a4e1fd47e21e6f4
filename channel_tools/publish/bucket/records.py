# SPDX-License-Identifier: BSD-3-Clause
"""The content of a label in a bucket: one object whose conditional replacement is the commit, and its changes.

A set is published at the moment when this object names its packages. Everything that clients read is derived from it
and can be written by any later writer, so the next one completes what a killed one did not finish. Packages are never
downloaded for it: their metadata is in the object. Pure: the writing is done elsewhere.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.content import subdir_content
from channel_tools.channel.listing import Listing, admitted, not_listed, prefer, with_foundation
from channel_tools.channel.maintenance import plan_retention, with_deleted, with_retired
from channel_tools.channel.records import CachedPackage, Records
from channel_tools.channel.state import ShardState, SubdirState
from channel_tools.channel.steps import SubdirChange, contents_in_order
from channel_tools.channel.store import published_package
from channel_tools.conda.package import NOARCH, PackageKey
from channel_tools.publish.channels import with_patches
from channel_tools.system.document import decode_msgpack
from channel_tools.system.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.channel.content import SubdirContent
    from channel_tools.channel.listing import Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.model import IndexedFile

RECORDS_SCHEMA = 3
_ZSTD_LEVEL = 3
_SIZE_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirRecords:
    """The packages of a subdir by file name, its shards by package name, and since when other shards have been unused.

    ``content`` is the digest of what is served for the subdir.
    """

    packages: dict[str, CachedPackage] = field(default_factory=dict)
    shards: dict[str, ShardState] = field(default_factory=dict)
    stale_since_s: dict[str, float] = field(default_factory=dict)
    content: str = ""

    def present_shards(self) -> set[str]:
        """The hashes of the shards that are in place."""
        return {shard.sha256 for shard in self.shards.values()} | self.stale_since_s.keys()


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelRecords:
    """Everything published under one label; ``writer`` identifies the holding of the lease that committed it."""

    schema: int = RECORDS_SCHEMA
    generation: int = 0
    writer: str = ""
    listing: Listing = field(default_factory=Listing)
    subdirs: dict[str, SubdirRecords] = field(default_factory=dict)

    def package(self, key: str) -> CachedPackage | None:
        """The row of ``subdir/file name``, if there is one."""
        parsed = PackageKey.parse(key)
        part = self.subdirs.get(parsed.subdir)
        return None if part is None else part.packages.get(parsed.file_name)

    def rows(self) -> dict[str, dict[str, CachedPackage]]:
        """The rows of all packages, by subdir and file name."""
        return {subdir: part.packages for subdir, part in self.subdirs.items()}

    def listed(self) -> set[str]:
        """The ``subdir/file name`` of the packages that new solves see."""
        return self.names() - not_listed(self.listing).keys()

    def names(self) -> set[str]:
        """The ``subdir/file name`` of all packages, including those that are kept for lock files."""
        return {f"{subdir}/{name}" for subdir, rows in self.subdirs.items() for name in rows.packages}


def encode_records(records: LabelRecords) -> bytes:
    """The object's bytes, with a checksum that decode_records checks."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(msgspec.msgpack.encode(records))


def decode_records(body: bytes, *, where: str) -> LabelRecords:
    """Read the object. Raises ChannelError if it is damaged or has another version."""
    try:
        plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=_SIZE_LIMIT_BYTES)
        records = decode_msgpack(plain, LabelRecords)
    except (zstandard.ZstdError, msgspec.DecodeError, MemoryError) as err:
        hint = "run the same command again; if that fails too, restore the object from a version or copy of the bucket"
        raise ChannelError(f"{where}: not valid channel records ({err})", hint=hint) from None
    if records.schema != RECORDS_SCHEMA:
        message = f"{where}: has schema {records.schema}; this version of channel_tools reads schema {RECORDS_SCHEMA}"
        raise ChannelError(message, hint="use the version of channel_tools that last wrote to the channel")
    return records


ALWAYS_SERVED = ("linux-64", NOARCH)
"""Subdirs that are served even if they are empty, as in a new channel folder."""


def with_packages(
    records: LabelRecords,
    rows: Mapping[str, CachedPackage],
    *,
    own: Sequence[str],
    foundation: Sequence[str],
    patches: Mapping[str, Patch] | None = None,
) -> LabelRecords:
    """The records after a set was published; ``rows`` (by ``subdir/file name``) are those of its files that are new.

    As in a folder, new own builds hide older ones of the same variant, and a non-empty ``foundation`` replaces the
    previous one; ``patches`` of subdirs come with the packages. Raises ChannelError for a name that was yanked or
    that had other bytes.
    """
    subdirs = dict(records.subdirs)
    added: dict[str, dict[str, CachedPackage]] = {subdir: {} for subdir in ALWAYS_SERVED}
    for key, row in rows.items():
        parsed = PackageKey.parse(key)
        added.setdefault(parsed.subdir, {})[parsed.file_name] = row
    for subdir, new in added.items():
        part = subdirs.get(subdir, SubdirRecords())
        subdirs[subdir] = dataclasses.replace(part, packages=dict(sorted((part.packages | new).items())))
    present = dict.fromkeys((*own, *foundation))
    listing = admitted(records.listing, present | {key: row.sha256 for key, row in rows.items()})
    if foundation:
        listing = with_foundation(listing, foundation)
    listing = with_patches(listing, patches or {}, replace=False)
    grown = dataclasses.replace(records, subdirs=dict(sorted(subdirs.items())), listing=listing)
    return dataclasses.replace(grown, listing=prefer(listing, _candidates(grown, own), own))


def _candidates(records: LabelRecords, own: Sequence[str]) -> list[IndexedFile]:
    """The own packages that may be builds of the same variant as those of ``own``: the same names."""
    names = {row.name for key in own if (row := records.package(key)) is not None}
    foundation = {*records.listing.foundation, *records.listing.superseded}
    return [
        published_package(Path(subdir) / name, row, None)
        for subdir, part in records.subdirs.items()
        for name, row in part.packages.items()
        if row.name in names and f"{subdir}/{name}" not in foundation
    ]


def with_found_shards(records: LabelRecords, shards: Mapping[str, Iterable[str]], *, now_s: float) -> LabelRecords:
    """The records with these shards added (hashes by subdir), which a writer left without committing them."""
    subdirs = dict(records.subdirs)
    for subdir, names in shards.items():
        part = subdirs[subdir]
        lost = dict.fromkeys(sorted(set(names) - part.present_shards()), now_s)
        subdirs[subdir] = dataclasses.replace(part, stale_since_s=part.stale_since_s | lost)
    return dataclasses.replace(records, subdirs=subdirs)


def contents(records: LabelRecords) -> dict[str, SubdirContent]:
    """What to serve for each subdir; shards that the records name count as written."""
    return {
        subdir: subdir_content(
            subdir,
            part.packages,
            records.listing,
            known_shards=part.shards,
            present_shards=part.present_shards(),
        )
        for subdir, part in records.subdirs.items()
    }


def steps(
    before: LabelRecords, after: LabelRecords, subdir_contents: Mapping[str, SubdirContent]
) -> list[SubdirContent]:
    """The contents to write, in order, so that no visible package lacks a dependency from its set."""
    hidden = not_listed(before.listing)
    changes = []
    for subdir, content in subdir_contents.items():
        part = before.subdirs.get(subdir, SubdirRecords())
        if content.digest != part.content:
            state = SubdirState(
                records=Records(packages=part.packages),
                removed=tuple(name for name in part.packages if f"{subdir}/{name}" in hidden),
                content=part.content,
            )
            patch = after.listing.patches.get(subdir)
            packages = after.subdirs[subdir].packages
            changes.append(SubdirChange(final=content, packages=packages, before=state, patch=patch))
    present = {subdir: part.present_shards() for subdir, part in after.subdirs.items()}
    return contents_in_order(changes, present_shards=present)


def with_served(
    records: LabelRecords,
    subdir_contents: Mapping[str, SubdirContent],
    between: Iterable[SubdirContent],
    *,
    now_s: float,
    grace_s: float,
) -> tuple[LabelRecords, dict[str, list[str]]]:
    """The records for when ``subdir_contents`` is served, after ``between`` was served.

    Also returns, by subdir, the shards that no index has named for ``grace_s``; they are dropped from the records.
    """
    passing = {shard.sha256: content.subdir for content in between for shard in content.shards.shards.values()}
    subdirs, expired = dict(records.subdirs), {}
    for subdir, content in subdir_contents.items():
        part = records.subdirs[subdir]
        used = {shard.sha256 for shard in content.shards.shards.values()}
        known = {sha256: now_s for sha256, where in passing.items() if where == subdir}
        known |= {shard.sha256: now_s for shard in part.shards.values()} | part.stale_since_s
        unused = {sha256: min(since, now_s) for sha256, since in sorted(known.items()) if sha256 not in used}
        expired[subdir] = [sha256 for sha256, since in unused.items() if now_s - since >= grace_s]
        stale = {sha256: since for sha256, since in unused.items() if sha256 not in expired[subdir]}
        subdirs[subdir] = dataclasses.replace(
            part, shards=content.shards.shards, stale_since_s=stale, content=content.digest
        )
    return dataclasses.replace(records, subdirs=subdirs), expired


def apply_retention(
    records: LabelRecords, rule: Retention, *, elsewhere: frozenset[str], now_s: float
) -> tuple[LabelRecords, RetentionPlan]:
    """The records after applying ``rule``, without what it deletes; also returns what that is.

    ``elsewhere`` are the names that other labels list.
    """
    plan = plan_retention(records.listing, records.rows(), rule, elsewhere=elsewhere, now_s=now_s)
    rows = {key: row for key in plan.retire if (row := records.package(key)) is not None}
    listing = with_deleted(with_retired(records.listing, rows, now_s=now_s), plan.delete)
    deleted = set(plan.delete)
    subdirs = {
        subdir: dataclasses.replace(
            part, packages={name: row for name, row in part.packages.items() if f"{subdir}/{name}" not in deleted}
        )
        for subdir, part in records.subdirs.items()
    }
    return dataclasses.replace(records, listing=listing, subdirs=subdirs), plan
