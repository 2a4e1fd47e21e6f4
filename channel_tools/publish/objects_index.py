# SPDX-License-Identifier: BSD-3-Clause
"""The files that clients read, written from a bucket's records.

Each index object says in its metadata which content it was made from, so that a run finds what a killed one did not get
to without reading any of them back. It is written only over the version that was looked at, and the lease is checked
in between: a writer that was held up cannot put an older index over a newer one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.channel.channeldata import make_channeldata
from channel_tools.channel.content import CHANNELDATA, INDEX_FILES, REPODATA, REPODATA_ZST
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_SUFFIX, SHARDS_FOLDER
from channel_tools.errors import ChannelError
from channel_tools.publish.objects_store import Served
from channel_tools.publish.objects_transfer import in_parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.channel.content import SubdirContent
    from channel_tools.publish.objects_lease import Lease
    from channel_tools.publish.objects_records import ObjectRecords
    from channel_tools.publish.objects_store import ObjectStore

_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "public, no-cache"  # caches keep it and ask each time whether it is still the one
_ATTEMPTS = 5
_FORMATS = 2
"""Raised when the same records are to be written in another way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _IndexObject:
    """An index as it should be; ``body`` is made only when it is not there yet."""

    key: str
    content: str
    body: Callable[[], bytes]
    content_type: str


def write_shards(store: ObjectStore, base: str, made: Mapping[str, SubdirContent]) -> None:
    """Put the shards that are not in place yet; their names are their hashes, so nothing is replaced."""
    served = Served(cache_control=_FOREVER)
    shards = [
        (f"{base}{subdir}/{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}", body)
        for subdir, content in made.items()
        for sha256, body in content.shards.new.items()
    ]
    in_parallel(lambda shard: store.put(*shard, served=served, replaces=None, conditional=False), shards)


def write_indexes(
    store: ObjectStore,
    base: str,
    records: ObjectRecords,
    made: Mapping[str, SubdirContent],
    *,
    lease: Lease,
    now_s: float,
) -> list[str]:
    """Bring all indexes in step with the records; returns the names of those that had to be written.

    ``base`` is the key of the label's folder with its slash. Raises ChannelError when another writer took over.
    """
    listing = encode_json(records.listing) + b"\n"
    objects = [
        *(row for content in made.values() for row in _of_subdir(base, content, now_s)),
        _IndexObject(
            key=f"{base}{CHANNELDATA}",
            content=_digest(*(content.digest for content in made.values())),
            body=lambda: _channeldata(made),
            content_type="application/json",
        ),
        _IndexObject(
            key=f"{base}{RECORD_FOLDER}/listing.json",
            content=hashlib.sha256(listing).hexdigest(),
            body=lambda: listing,
            content_type="application/json",
        ),
    ]
    written = in_parallel(lambda wanted: _bring_up(store, wanted, lease), objects)
    return [wanted.key.removeprefix(base) for wanted, new in zip(objects, written, strict=True) if new]


def _of_subdir(base: str, content: SubdirContent, now_s: float) -> list[_IndexObject]:
    bodies: dict[str, bytes] = {}

    def body(name: str) -> bytes:
        if not bodies:
            bodies.update(content.index_files(now_s=now_s))
        return bodies[name]

    return [
        _IndexObject(
            key=f"{base}{content.subdir}/{name}",
            content=content.digest,
            body=lambda name=name: body(name),  # type: ignore[misc]
            content_type=_type_of(name),
        )
        for name in INDEX_FILES
    ]


def _type_of(name: str) -> str:
    """No Content-Encoding anywhere: clients unpack by the name, and some would unpack twice."""
    if name == REPODATA_ZST:
        return "application/zstd"
    return "application/json" if name.endswith(".json") or name == REPODATA else "application/octet-stream"


def _channeldata(made: Mapping[str, SubdirContent]) -> bytes:
    return make_channeldata({subdir: content.listed for subdir, content in made.items()})


def _bring_up(store: ObjectStore, wanted: _IndexObject, lease: Lease) -> bool:
    """Write the index unless it is there; whether it was written."""
    for _attempt in range(_ATTEMPTS):
        head = store.head(wanted.key)
        if head is not None and head.metadata.get("content") == wanted.content:
            return False
        served = Served(
            content_type=wanted.content_type, cache_control=_ASK_AGAIN, metadata={"content": wanted.content}
        )
        body = wanted.body()
        lease.check()
        if store.put(wanted.key, body, served=served, replaces=None if head is None else head.etag) is not None:
            return True
    message = f"s3://{store.bucket}/{wanted.key}: is changed by something else all the time"
    raise ChannelError(message, hint="find out what else writes to this place; only channel_tools should")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join((str(_FORMATS), *parts)).encode("ascii")).hexdigest()


def delete_shards(store: ObjectStore, base: str, expired: Mapping[str, Sequence[str]], *, lease: Lease) -> None:
    """Remove shards that no index names any more."""
    keys = [
        f"{base}{subdir}/{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}"
        for subdir, names in sorted(expired.items())
        for sha256 in names
    ]
    lease.check()
    store.delete(keys)
