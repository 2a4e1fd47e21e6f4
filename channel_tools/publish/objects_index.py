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
from channel_tools.channel.content import CHANNELDATA, INDEX_FILES, REPODATA_FROM_PACKAGES, REPODATA_ZST
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.records import encode_json
from channel_tools.channel.shards import SHARD_SUFFIX, SHARDS_FOLDER
from channel_tools.errors import ChannelError
from channel_tools.publish.objects_store import Served
from channel_tools.publish.objects_transfer import in_parallel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


def shard_key(base: str, subdir: str, sha256: str) -> str:
    """The key of a shard; ``base`` is the key of the label's folder with its slash."""
    return f"{base}{subdir}/{SHARDS_FOLDER}/{sha256}{SHARD_SUFFIX}"


def write_shards(store: ObjectStore, base: str, contents: Iterable[SubdirContent]) -> None:
    """Put the shards that are not in place yet; their names are their hashes, so nothing is replaced."""
    served = Served(cache_control=_FOREVER)
    shards = {
        shard_key(base, content.subdir, sha256): body
        for content in contents
        for sha256, body in content.shards.new.items()
    }
    in_parallel(
        lambda shard: store.put(*shard, served=served, replaces=None, conditional=False), sorted(shards.items())
    )


def write_indexes(
    store: ObjectStore,
    base: str,
    records: ObjectRecords,
    made: Mapping[str, SubdirContent],
    ways: Sequence[SubdirContent],
    *,
    lease: Lease,
    now_s: float,
) -> None:
    """Put ``ways`` in place one after the other, then all indexes that differ from ``made``, made from the records.

    ``base`` is the key of the label's folder with its slash. Raises ChannelError when another writer took over.
    """
    for content in ways:
        in_parallel(lambda wanted: _bring_up(store, wanted, lease), _of_subdir(base, content, now_s))
    listing = encode_json(records.listing) + b"\n"
    rest = [content for content in made.values() if not any(content is done for done in ways)]
    objects = [
        *(row for content in rest for row in _of_subdir(base, content, now_s)),
        _IndexObject(
            key=f"{base}{CHANNELDATA}",
            content=_digest(*(content.digest for content in made.values())),
            body=lambda: make_channeldata({subdir: content.listed for subdir, content in made.items()}),
            content_type="application/json",
        ),
        _IndexObject(
            key=f"{base}{RECORD_FOLDER}/listing.json",
            content=hashlib.sha256(listing).hexdigest(),
            body=lambda: listing,
            content_type="application/json",
        ),
    ]
    in_parallel(lambda wanted: _bring_up(store, wanted, lease), objects)


def _of_subdir(base: str, content: SubdirContent, now_s: float) -> list[_IndexObject]:
    bodies: dict[str, bytes] = {}

    def body(name: str) -> bytes:
        if not bodies:
            bodies.update(content.index_files(now_s=now_s))
        return bodies[name]

    # the shards' own names are not part of the content's digest
    made_from = _digest(content.digest, *(f"{name} {row.sha256}" for name, row in content.shards.shards.items()))
    names = INDEX_FILES if content.from_packages is None else (*INDEX_FILES, REPODATA_FROM_PACKAGES)
    return [
        _IndexObject(
            key=f"{base}{content.subdir}/{name}",
            content=made_from,
            body=lambda name=name: body(name),  # type: ignore[misc]
            content_type=_type_of(name),
        )
        for name in names
    ]


def _type_of(name: str) -> str:
    """No Content-Encoding anywhere: clients unpack by the name, and some would unpack twice."""
    if name == REPODATA_ZST:
        return "application/zstd"
    return "application/json" if name.endswith(".json") else "application/octet-stream"


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
