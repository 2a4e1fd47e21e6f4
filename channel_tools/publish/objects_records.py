# SPDX-License-Identifier: BSD-3-Clause
"""What a channel in a bucket holds, in one object whose conditional replacement is the commit.

A set is published at the moment in which this object names its packages. Everything that clients read is made from it
and can be made again by any later writer, so what a killed one did not get to is done by the next. Packages are never
read back: their metadata stands here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import zstandard

from channel_tools.channel.content import SubdirContent, not_listed, subdir_content
from channel_tools.channel.listing import prefer, with_foundation
from channel_tools.channel.model import NOARCH
from channel_tools.channel.records import CachedPackage  # noqa: TC001 - msgspec reads the annotations
from channel_tools.channel.state import Listing, Shard
from channel_tools.channel.store import published_package
from channel_tools.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.channel.model import PublishedPackage

RECORDS_SCHEMA = 2
_ALWAYS = ("linux-64", NOARCH)
"""Subdirs that are served even when they are empty, as in a new folder."""
_ZSTD_LEVEL = 3
_SIZE_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirRecords:
    """The packages of a subdir by file name, its shards by package name, and since when others are unused."""

    packages: dict[str, CachedPackage] = field(default_factory=dict)
    shards: dict[str, Shard] = field(default_factory=dict)
    stale_since_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectRecords:
    """Everything that is published under one label; ``writer`` names the holding of the lease that committed it."""

    schema: int = RECORDS_SCHEMA
    generation: int = 0
    writer: str = ""
    listing: Listing = field(default_factory=Listing)
    subdirs: dict[str, SubdirRecords] = field(default_factory=dict)

    def package(self, key: str) -> CachedPackage | None:
        """The row of ``subdir/file name``."""
        subdir, _slash, file_name = key.partition("/")
        return self.subdirs[subdir].packages.get(file_name) if subdir in self.subdirs else None

    def listed(self) -> set[str]:
        """``subdir/file name`` of what new solves see."""
        return self.names() - not_listed(self.listing).keys()

    def names(self) -> set[str]:
        """``subdir/file name`` of everything that is there, for lock files too."""
        return {f"{subdir}/{name}" for subdir, rows in self.subdirs.items() for name in rows.packages}

    def is_foundation(self, key: str) -> bool:
        """Whether the package is one that was not built from a recipe of ours."""
        return key in self.listing.foundation or key in self.listing.superseded


def encode_records(records: ObjectRecords) -> bytes:
    """The object's bytes, with a checksum that decode_records checks."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(msgspec.msgpack.encode(records))


def decode_records(body: bytes, *, where: str) -> ObjectRecords:
    """Read the object. Raises ChannelError when it is damaged or of another version."""
    try:
        plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=_SIZE_LIMIT_BYTES)
        records = msgspec.msgpack.decode(plain, type=ObjectRecords)
    except (zstandard.ZstdError, msgspec.DecodeError, MemoryError) as err:
        hint = "run the same command again; if it stays so, restore the object from a version or copy of the bucket"
        raise ChannelError(f"{where}: not the records of a channel ({err})", hint=hint) from None
    if records.schema != RECORDS_SCHEMA:
        message = f"{where}: has schema {records.schema}; this version of channel_tools reads schema {RECORDS_SCHEMA}"
        raise ChannelError(message, hint="use the version of channel_tools that wrote to the channel last")
    return records


def with_packages(
    records: ObjectRecords, rows: Mapping[str, CachedPackage], *, own: Sequence[str], foundation: Sequence[str]
) -> ObjectRecords:
    """The records after a set was published; ``rows`` (by ``subdir/file name``) are those of its files that are new.

    As in a folder, new own builds hide older ones of the same variant, and a ``foundation`` that is not empty takes the
    place of the one before.
    """
    subdirs = dict(records.subdirs)
    for subdir in {*_ALWAYS, *(key.partition("/")[0] for key in rows)}:
        new = {key.partition("/")[2]: row for key, row in rows.items() if key.startswith(f"{subdir}/")}
        part = subdirs.get(subdir, SubdirRecords())
        subdirs[subdir] = dataclasses.replace(part, packages=dict(sorted((part.packages | new).items())))
    listing = with_foundation(records.listing, foundation) if foundation else records.listing
    grown = dataclasses.replace(records, subdirs=dict(sorted(subdirs.items())), listing=listing)
    return dataclasses.replace(grown, listing=prefer(listing, _own_packages(grown), own))


def _own_packages(records: ObjectRecords) -> list[PublishedPackage]:
    foreign = {*records.listing.foundation, *records.listing.superseded}
    return [
        published_package(Path(subdir) / name, row, None)
        for subdir, part in records.subdirs.items()
        for name, row in part.packages.items()
        if f"{subdir}/{name}" not in foreign
    ]


def with_found_shards(records: ObjectRecords, found: Mapping[str, Iterable[str]], *, now_s: float) -> ObjectRecords:
    """The records that know of these shards too (hashes by subdir), left by a writer that did not commit them."""
    subdirs = dict(records.subdirs)
    for subdir, names in found.items():
        part = subdirs.get(subdir, SubdirRecords())
        known = {shard.sha256 for shard in part.shards.values()} | part.stale_since_s.keys()
        lost = dict.fromkeys(sorted(set(names) - known), now_s)
        subdirs[subdir] = dataclasses.replace(part, stale_since_s=part.stale_since_s | lost)
    return dataclasses.replace(records, subdirs=subdirs)


def contents(records: ObjectRecords) -> dict[str, SubdirContent]:
    """What is to be served for each subdir; shards that the records name count as being in place."""
    return {
        subdir: subdir_content(
            subdir,
            part.packages,
            records.listing,
            known_shards=part.shards,
            present_shards={shard.sha256 for shard in part.shards.values()} | part.stale_since_s.keys(),
        )
        for subdir, part in records.subdirs.items()
    }


def with_shards(
    records: ObjectRecords, made: Mapping[str, SubdirContent], *, now_s: float, grace_s: float
) -> tuple[ObjectRecords, dict[str, list[str]]]:
    """The records with the shards of ``made`` in force, and by subdir the shards unused for ``grace_s`` to delete."""
    subdirs, expired = dict(records.subdirs), {}
    for subdir, content in made.items():
        part = records.subdirs[subdir]
        used = {shard.sha256 for shard in content.shards.shards.values()}
        known = {shard.sha256: now_s for shard in part.shards.values()} | part.stale_since_s
        unused = {sha256: min(since, now_s) for sha256, since in sorted(known.items()) if sha256 not in used}
        expired[subdir] = [sha256 for sha256, since in unused.items() if now_s - since >= grace_s]
        stale = {sha256: since for sha256, since in unused.items() if sha256 not in expired[subdir]}
        subdirs[subdir] = dataclasses.replace(part, shards=content.shards.shards, stale_since_s=stale)
    return dataclasses.replace(records, subdirs=subdirs), expired
