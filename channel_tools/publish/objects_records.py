# SPDX-License-Identifier: BSD-3-Clause
"""What a channel in a bucket holds, in one object whose conditional replacement is the commit.

A set is published at the moment in which this object names its packages. Everything that clients read is made from it
and can be made again by any later writer, so what a killed one did not get to is done by the next. Packages are never
read back: their metadata stands here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import zstandard

from channel_tools.channel.content import not_listed
from channel_tools.channel.records import CachedPackage  # noqa: TC001 - msgspec reads the annotations
from channel_tools.channel.state import Listing, Shard
from channel_tools.errors import ChannelError

RECORDS_SCHEMA = 3
_ZSTD_LEVEL = 3
_SIZE_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class SubdirRecords:
    """The packages of a subdir by file name, its shards by package name, and since when other shards are unused.

    ``content`` is the digest of what is served for it.
    """

    packages: dict[str, CachedPackage] = field(default_factory=dict)
    shards: dict[str, Shard] = field(default_factory=dict)
    stale_since_s: dict[str, float] = field(default_factory=dict)
    content: str = ""

    def present_shards(self) -> set[str]:
        """The hashes of the shards that are in place."""
        return {shard.sha256 for shard in self.shards.values()} | self.stale_since_s.keys()


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
