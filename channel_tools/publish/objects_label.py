# SPDX-License-Identifier: BSD-3-Clause
"""One label of a bucket: reading what it holds, and changing it while the writer's lease is held."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools import __version__
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_SUFFIX, SHARDS_FOLDER
from channel_tools.channel.state import CHANNEL_SCHEMA, ChannelRecord
from channel_tools.errors import ChannelError, FoundationError
from channel_tools.publish.objects_index import delete_shards, write_indexes, write_shards
from channel_tools.publish.objects_records import (
    ObjectRecords,
    contents,
    decode_records,
    encode_records,
    with_found_shards,
    with_packages,
    with_shards,
)
from channel_tools.publish.objects_store import Served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.channel import Foundation
    from channel_tools.channel.records import CachedPackage
    from channel_tools.publish.objects_lease import Lease
    from channel_tools.publish.objects_store import ObjectStore

_RECORDS = f"{RECORD_FOLDER}/records.msgpack.zst"
_CHANNEL = f"{RECORD_FOLDER}/channel.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPlace:
    """Where a label lies: ``base`` is the key of its folder, with a slash at the end unless it is empty."""

    store: ObjectStore
    base: str

    def read(self) -> ObjectRecords:
        """What is committed; nothing for a label that does not exist. Raises ChannelError for damaged records."""
        return self._read()[0]

    def _read(self) -> tuple[ObjectRecords, str | None]:
        key = self.base + _RECORDS
        found = self.store.get(key)
        if found is None:
            return ObjectRecords(), None
        return decode_records(found[0], where=f"s3://{self.store.bucket}/{key}"), found[1].etag

    def foundation(self) -> Foundation | None:
        """The foundation that is recorded, None where no channel is. Raises ChannelError for a damaged record."""
        key = self.base + _CHANNEL
        found = self.store.get(key)
        if found is None:
            return None
        try:
            return msgspec.json.decode(found[0], type=ChannelRecord).foundation
        except msgspec.DecodeError as err:
            hint = "restore the object from a version or copy of the bucket"
            raise ChannelError(f"s3://{self.store.bucket}/{key}: not a channel record ({err})", hint=hint) from None

    def insist_on_foundation(self, foundation: Foundation) -> bool:
        """Whether the label exists. Raises FoundationError when it was made with another foundation."""
        recorded = self.foundation()
        if recorded is None or recorded == foundation:
            return recorded is not None
        message = (
            f"s3://{self.store.bucket}/{self.base}: was made with the foundation {recorded}, not {foundation}; "
            "a channel has one foundation, since packages of two do not fit together"
        )
        raise FoundationError(message, hint="publish to another prefix or bucket")

    def make(self, foundation: Foundation) -> None:
        """Record what the channel is, unless it is recorded."""
        if self.insist_on_foundation(foundation):
            return
        name = self.base.rstrip("/").rpartition("/")[2] or self.store.bucket
        record = ChannelRecord(
            schema=CHANNEL_SCHEMA, name=name, foundation=foundation, created_with=f"channel_tools {__version__}"
        )
        served = Served(content_type="application/json")
        if self.store.put(self.base + _CHANNEL, encode_json(record) + b"\n", served=served, replaces=None) is None:
            self.insist_on_foundation(foundation)  # a write whose answer got lost, or one by somebody else

    def commit(
        self,
        rows: Mapping[str, CachedPackage],
        *,
        own: Sequence[str],
        foundation: Sequence[str],
        lease: Lease,
        now_s: float,
        recover: bool,
        grace_s: float,
    ) -> None:
        """Publish ``rows`` (see with_packages), whose objects are in place, and bring all indexes in step.

        With nothing new it only completes what an earlier writer began; ``recover`` looks for shards that it left.
        Raises ChannelError when another writer took over: then nothing of the set is published, or all of it.
        """
        before, etag = self._read()
        known = with_found_shards(before, self._shards_there(before), now_s=now_s) if recover else before
        grown = with_packages(known, rows, own=own, foundation=foundation)
        made = contents(grown)
        final, expired = with_shards(grown, made, now_s=now_s, grace_s=grace_s)
        lease.check()
        write_shards(self.store, self.base, made)
        if final != before:
            final = dataclasses.replace(final, generation=before.generation + 1, writer=lease.token)
            self._commit(final, etag)
        write_indexes(self.store, self.base, final, made, lease=lease, now_s=now_s)
        delete_shards(self.store, self.base, expired, lease=lease)

    def _commit(self, records: ObjectRecords, replaces: str | None) -> None:
        key = self.base + _RECORDS
        served = Served(content_type="application/zstd")
        if self.store.put(key, encode_records(records), served=served, replaces=replaces) is not None:
            return
        found = self.read()  # the answer to the write may have got lost
        if (found.writer, found.generation) != (records.writer, records.generation):
            message = f"s3://{self.store.bucket}/{key}: another writer came in between"
            raise ChannelError(message, hint="run the same command again: what has arrived is kept")

    def _shards_there(self, records: ObjectRecords) -> dict[str, list[str]]:
        found = {}
        for subdir in records.subdirs:
            prefix = f"{self.base}{subdir}/{SHARDS_FOLDER}/"
            found[subdir] = [key.removeprefix(prefix).removesuffix(SHARD_SUFFIX) for key in self.store.names(prefix)]
        return found
