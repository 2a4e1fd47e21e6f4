# SPDX-License-Identifier: BSD-3-Clause
"""One label of a bucket: its content, and changing it while the writer's lease is held.

The committed state is in the label's records; the files that clients read are written from them. Each index object
has in its metadata which content it was made from, so that a run finds what a killed one did not finish without reading
the indexes. An index is only written over the version that was read before, and the lease is checked in between: a
delayed writer cannot replace a newer index with an older one.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from channel_tools import __version__
from channel_tools.channel.content import INDEX_FILES, make_channeldata
from channel_tools.channel.listing import CHANNEL_SCHEMA
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.state import ChannelRecord
from channel_tools.conda.addresses import channel_name
from channel_tools.conda.repodata import (
    CHANNELDATA,
    REPODATA,
    REPODATA_FROM_PACKAGES,
    REPODATA_ZST,
    SHARD_SUFFIX,
    SHARDS_FOLDER,
    encode_json,
)
from channel_tools.publish.bucket.records import (
    ALWAYS_SERVED,
    LabelRecords,
    contents,
    decode_records,
    encode_records,
    steps,
    with_found_shards,
    with_served,
)
from channel_tools.publish.store import ASK_AGAIN, FOREVER, Served, in_parallel
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, FoundationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from channel_tools.channel import Foundation
    from channel_tools.channel.content import SubdirContent
    from channel_tools.publish.bucket.lease import Lease
    from channel_tools.publish.store import Store

_RECORDS = f"{RECORD_FOLDER}/records.msgpack.zst"
_CHANNEL = f"{RECORD_FOLDER}/channel.json"
_ATTEMPTS = 5
_FORMATS = 2
"""Increased when the same content is to be written in a different form."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketLabel:
    """A label in a bucket: ``base`` is the key of its folder, with a slash at the end unless it is empty."""

    store: Store
    base: str

    def read(self) -> LabelRecords:
        """The committed records; empty for a label that does not exist.

        Raises ChannelError for damaged records, and for an index without records, which would be overwritten.
        """
        return self.read_with_etag()[0]

    def read_with_etag(self) -> tuple[LabelRecords, str | None]:
        """Like read, with the ETag of the records, None if there are none."""
        key = self.base + _RECORDS
        stored = self.store.get(key)
        if stored is None:
            self._require_no_index()
            return LabelRecords(), None
        return decode_records(stored[0], where=self.store.url(key)), stored[1].etag

    def _require_no_index(self) -> None:
        for subdir in ALWAYS_SERVED:
            key = f"{self.base}{subdir}/{REPODATA}"
            if self.store.head(key) is not None:
                message = f"{self.store.url(key)}: is the index of a channel that has no channel_tools records"
                hint = (
                    "publish to another prefix; if the channel is yours, restore "
                    f"{self.base}{_RECORDS} from a version or copy of the bucket"
                )
                raise ChannelError(message, hint=hint)

    def foundation(self) -> Foundation | None:
        """The recorded foundation, None if there is no channel. Raises ChannelError for a damaged record."""
        stored = self._record()
        return None if stored is None else stored[0].foundation

    def _record(self) -> tuple[ChannelRecord, str] | None:
        """The channel's record and its ETag. Raises as foundation."""
        key = self.base + _CHANNEL
        stored = self.store.get(key)
        if stored is None:
            return None
        try:
            return decode_json(stored[0], ChannelRecord), stored[1].etag
        except msgspec.DecodeError as err:
            hint = "restore the object from a version or copy of the bucket"
            raise ChannelError(f"{self.store.url(key)}: not a valid channel record ({err})", hint=hint) from None

    def require_foundation(self, foundation: Foundation) -> bool:
        """Whether the label exists. Raises FoundationError if it was made with another foundation."""
        recorded = self.foundation()
        if recorded is not None:
            self._require_same(recorded, foundation)
        return recorded is not None

    def _require_same(self, recorded: Foundation, foundation: Foundation) -> None:
        if recorded == foundation:
            return
        message = (
            f"{self.store.url(self.base)}: was made with the foundation {recorded}, not {foundation}; "
            "a channel has one foundation, since packages for different foundations are incompatible"
        )
        raise FoundationError(message, hint="publish to another prefix or bucket")

    def make(self, foundation: Foundation) -> None:
        """Write the channel's record unless it exists and has the foundation's further channels."""
        stored = self._record()
        name = channel_name(self.store.url(self.base))
        record = ChannelRecord(
            schema=CHANNEL_SCHEMA, name=name, foundation=foundation, created_with=f"channel_tools {__version__}"
        )
        if stored is not None:
            self._require_same(stored[0].foundation, foundation)
            record = replace(stored[0], foundation=stored[0].foundation.with_further(foundation.further))
            if record.foundation.further == stored[0].foundation.further:
                return
        served, etag = Served(content_type="application/json"), None if stored is None else stored[1]
        if self.store.put(self.base + _CHANNEL, encode_json(record) + b"\n", served=served, replaces=etag) is None:
            self.require_foundation(foundation)  # our own write whose response was lost, or another writer's

    def shard_key(self, subdir: str, sha256: str) -> str:
        """The key of a shard."""
        return f"{self.base}{subdir}/{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _IndexObject:
    """An index as it should be; ``body`` is called only if the index has to be written."""

    key: str
    content: str
    body: Callable[[], bytes]
    content_type: str = "application/json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelWriter:
    """Changes a label; ``grace_s`` is how long shards are kept after no index names them any more."""

    label: BucketLabel
    lease: Lease
    now_s: float
    grace_s: float

    @property
    def _store(self) -> Store:
        return self.label.store

    @property
    def _base(self) -> str:
        return self.label.base

    def commit(self, change: Callable[[LabelRecords], LabelRecords], *, recover: bool) -> None:
        """Commit a change whose packages are all in place, and write the indexes that differ.

        With ``recover`` the indexes may differ from what was last committed; that is repaired first. Raises what
        ``change`` raises, and ChannelError if another writer took over: then readers see nothing of the change, or it
        is committed.
        """
        before, etag = self.label.read_with_etag()
        if recover:
            known = with_found_shards(before, self._shards_there(before), now_s=self.now_s)
            before, etag = self._put(known, before, etag, recover=True)
        self._put(change(before), before, etag, recover=False)

    def _put(
        self, after: LabelRecords, before: LabelRecords, etag: str | None, *, recover: bool
    ) -> tuple[LabelRecords, str | None]:
        """Write shards, records and indexes, in this order; then delete what nobody reads any more."""
        subdir_contents = contents(after)
        between = [] if recover else steps(before, after, subdir_contents)
        final, expired = with_served(after, subdir_contents, between, now_s=self.now_s, grace_s=self.grace_s)
        self.lease.check()
        self._write_shards([*between, *subdir_contents.values()])
        if final != before:
            final = dataclasses.replace(final, generation=before.generation + 1, writer=self.lease.token)
            etag = self._replace_records(final, etag)
        self._write_indexes(final, subdir_contents, between)
        plain = [name for name, content in subdir_contents.items() if content.from_packages is None]
        unpatched = [name for name in plain if recover or name in before.listing.patches]
        self.lease.check()
        self._store.delete(
            [
                *(f"{self._base}{subdir}/{REPODATA_FROM_PACKAGES}" for subdir in unpatched),
                *(self.label.shard_key(subdir, sha256) for subdir in expired for sha256 in expired[subdir]),
            ]
        )
        return final, etag

    def _replace_records(self, records: LabelRecords, replaces: str | None) -> str | None:
        key = self._base + _RECORDS
        served = Served(content_type="application/zstd")
        etag = self._store.put(key, encode_records(records), served=served, replaces=replaces)
        if etag is not None:
            return etag
        current, etag = self.label.read_with_etag()  # the response to the write may have been lost
        if (current.writer, current.generation) != (records.writer, records.generation):
            message = f"{self._store.url(key)}: another writer changed it in the meantime"
            raise ChannelError(message, hint="run the same command again: what was sent is kept")
        return etag

    def _shards_there(self, records: LabelRecords) -> dict[str, list[str]]:
        shards = {}
        for subdir in records.subdirs:
            prefix = f"{self._base}{subdir}/{SHARDS_FOLDER}/"
            shards[subdir] = [key.removeprefix(prefix).removesuffix(SHARD_SUFFIX) for key in self._store.keys(prefix)]
        return shards

    def _write_shards(self, contents: Iterable[SubdirContent]) -> None:
        """Write the shards that are missing; their names are their hashes, so nothing is replaced."""
        served = Served(cache_control=FOREVER)
        shards = {
            self.label.shard_key(content.subdir, sha256): body
            for content in contents
            for sha256, body in content.shards.new.items()
        }
        in_parallel(
            lambda shard: self._store.put(*shard, served=served, replaces=None, conditional=False),
            sorted(shards.items()),
        )

    def _write_indexes(
        self, records: LabelRecords, subdir_contents: Mapping[str, SubdirContent], between: Sequence[SubdirContent]
    ) -> None:
        """Write ``between`` one after the other, then all indexes that differ from ``subdir_contents``.

        Raises ChannelError if another writer took over.
        """
        for content in between:
            in_parallel(self._write_if_changed, self._indexes_of(content))
        listing = encode_json(records.listing) + b"\n"
        unlisted = [content for content in subdir_contents.values() if not any(content is done for done in between)]
        objects = [
            *(row for content in unlisted for row in self._indexes_of(content)),
            _IndexObject(
                key=f"{self._base}{CHANNELDATA}",
                content=_digest(*(content.digest for content in subdir_contents.values())),
                body=lambda: make_channeldata({subdir: content.listed for subdir, content in subdir_contents.items()}),
            ),
            _IndexObject(
                key=f"{self._base}{RECORD_FOLDER}/listing.json",
                content=hashlib.sha256(listing).hexdigest(),
                body=lambda: listing,
            ),
        ]
        in_parallel(self._write_if_changed, objects)

    def _indexes_of(self, content: SubdirContent) -> list[_IndexObject]:
        bodies: dict[str, bytes] = {}

        def body(name: str) -> bytes:
            if not bodies:
                bodies.update(content.index_files(now_s=self.now_s))
            return bodies[name]

        # the shards' own names are not part of the content's digest
        made_from = _digest(content.digest, *(f"{name} {row.sha256}" for name, row in content.shards.shards.items()))
        names = INDEX_FILES if content.from_packages is None else (*INDEX_FILES, REPODATA_FROM_PACKAGES)
        return [
            _IndexObject(
                key=f"{self._base}{content.subdir}/{name}",
                content=made_from,
                body=lambda name=name: body(name),  # type: ignore[misc]
                content_type=_type_of(name),
            )
            for name in names
        ]

    def _write_if_changed(self, index: _IndexObject) -> bool:
        """Write the index unless it is up to date; returns whether it was written."""
        for _attempt in range(_ATTEMPTS):
            head = self._store.head(index.key)
            if head is not None and head.metadata.get("content") == index.content:
                return False
            served = Served(
                content_type=index.content_type, cache_control=ASK_AGAIN, metadata={"content": index.content}
            )
            body = index.body()
            self.lease.check()
            replaces = None if head is None else head.etag
            if self._store.put(index.key, body, served=served, replaces=replaces) is not None:
                return True
        message = f"{self._store.url(index.key)}: another program keeps changing it"
        raise ChannelError(message, hint="find out what else writes to this bucket; only channel_tools should")


def _type_of(name: str) -> str:
    """The content type. No object has a Content-Encoding: clients decompress by the name, some would do so twice."""
    if name == REPODATA_ZST:
        return "application/zstd"
    return "application/json" if name.endswith(".json") else "application/octet-stream"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join((str(_FORMATS), *parts)).encode("ascii")).hexdigest()
