# SPDX-License-Identifier: BSD-3-Clause
"""One label of a bucket: reading what it holds, and changing it while the writer's lease is held."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from channel_tools import __version__
from channel_tools.channel.content import REPODATA, REPODATA_FROM_PACKAGES
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_SUFFIX, SHARDS_FOLDER
from channel_tools.channel.state import CHANNEL_SCHEMA, ChannelRecord
from channel_tools.errors import ChannelError, FoundationError
from channel_tools.publish.objects_changes import ALWAYS_SERVED, contents, steps, with_found_shards, with_served
from channel_tools.publish.objects_index import shard_key, write_indexes, write_shards
from channel_tools.publish.objects_records import ObjectRecords, decode_records, encode_records
from channel_tools.publish.objects_store import Served

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.channel import Foundation
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
        """What is committed; nothing for a label that does not exist.

        Raises ChannelError for damaged records, and for an index that has none: it would be lost by writing another.
        """
        return self._read()[0]

    def _read(self) -> tuple[ObjectRecords, str | None]:
        key = self.base + _RECORDS
        found = self.store.get(key)
        if found is None:
            self._insist_on_no_index()
            return ObjectRecords(), None
        return decode_records(found[0], where=f"s3://{self.store.bucket}/{key}"), found[1].etag

    def _insist_on_no_index(self) -> None:
        for subdir in ALWAYS_SERVED:
            key = f"{self.base}{subdir}/{REPODATA}"
            if self.store.head(key) is not None:
                message = f"s3://{self.store.bucket}/{key}: is the index of a channel without records of channel_tools"
                hint = (
                    "publish to another prefix; if it is a channel of yours, restore "
                    f"{self.base}{_RECORDS} from a version or copy of the bucket"
                )
                raise ChannelError(message, hint=hint)

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
        change: Callable[[ObjectRecords], ObjectRecords],
        *,
        lease: Lease,
        now_s: float,
        recover: bool,
        grace_s: float,
    ) -> None:
        """Make a change, all of whose packages are in place, and bring the indexes in step.

        With ``recover`` the indexes may not be what was committed last; that is put right first. Raises ChannelError
        when another writer took over: then readers see nothing of the change, or it is committed; and what ``change``
        raises.
        """
        before, etag = self._read()
        if recover:
            known = with_found_shards(before, self._shards_there(before), now_s=now_s)
            before, etag = self._put(known, before, etag, lease=lease, now_s=now_s, grace_s=grace_s, recover=True)
        self._put(change(before), before, etag, lease=lease, now_s=now_s, grace_s=grace_s, recover=False)

    def _put(
        self,
        after: ObjectRecords,
        before: ObjectRecords,
        etag: str | None,
        *,
        lease: Lease,
        now_s: float,
        grace_s: float,
        recover: bool,
    ) -> tuple[ObjectRecords, str | None]:
        made = contents(after)
        ways = [] if recover else steps(before, after, made)
        final, expired = with_served(after, made, ways, now_s=now_s, grace_s=grace_s)
        lease.check()
        write_shards(self.store, self.base, [*ways, *made.values()])
        if final != before:
            final = dataclasses.replace(final, generation=before.generation + 1, writer=lease.token)
            etag = self._commit(final, etag)
        write_indexes(self.store, self.base, final, made, ways, lease=lease, now_s=now_s)
        plain = [name for name, content in made.items() if content.from_packages is None]
        unpatched = [name for name in plain if recover or name in before.listing.patches]
        lease.check()
        self.store.delete(
            [
                *(f"{self.base}{subdir}/{REPODATA_FROM_PACKAGES}" for subdir in unpatched),
                *(shard_key(self.base, subdir, sha256) for subdir in expired for sha256 in expired[subdir]),
            ]
        )
        return final, etag

    def _commit(self, records: ObjectRecords, replaces: str | None) -> str | None:
        key = self.base + _RECORDS
        served = Served(content_type="application/zstd")
        etag = self.store.put(key, encode_records(records), served=served, replaces=replaces)
        if etag is not None:
            return etag
        found, etag = self._read()  # the answer to the write may have got lost
        if (found.writer, found.generation) != (records.writer, records.generation):
            message = f"s3://{self.store.bucket}/{key}: another writer came in between"
            raise ChannelError(message, hint="run the same command again: what has arrived is kept")
        return etag

    def _shards_there(self, records: ObjectRecords) -> dict[str, list[str]]:
        found = {}
        for subdir in records.subdirs:
            prefix = f"{self.base}{subdir}/{SHARDS_FOLDER}/"
            found[subdir] = [key.removeprefix(prefix).removesuffix(SHARD_SUFFIX) for key in self.store.names(prefix)]
        return found
