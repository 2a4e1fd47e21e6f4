# SPDX-License-Identifier: BSD-3-Clause
"""The store interface: what a bucket must support so that channels can be kept in it.

Everything else about channels in a bucket (labels, sets, the writer's lease, indexes, promotion, yank, hotfix,
retention) is written once against this interface, in ``bucket/`` and ``channels.py``.

======= ============================================================================================================
method  what a store must guarantee
======= ============================================================================================================
get     (and head) Return the last write at once: a read after a write, also by another client, sees it. ``etag``
        changes with every write. ``age_s`` comes from the store's own clock, never from this machine's.
put     Writes the whole object or nothing. The condition and the write are one step: of two writers that replace the
        same ``etag``, or create the same key, one gets None. A store that cannot guarantee this must not be used; the
        lease tests it before anything is written.
send    Writes a file of any size to a new key: it appears whole or not at all, and never replaces an object. What
        arrived before a failure may be used by the next call (``resume``); memory is bounded.
copy    Like send, from another object of the store, without transferring its bytes to this machine.
keys    (and folders) All keys that start with a prefix, sorted, including those that were just written.
delete  Missing keys are ignored.
abandon Drops what is left of sends that were cut off.
======= ============================================================================================================

All of them may be called by several threads. They raise NetworkError (unreachable, access denied; the message has no
secrets), UsageError (no such bucket), IntegrityError (bytes changed on the way) and ChannelError (not supported).

To add another kind of store (another cloud's buckets, WebDAV with ``If-Match``): write one module with a class that
has these methods and a function ``open_x(address, environ)`` that returns ``BucketTarget(store=..., address=...,
prefix=...)``, and add its scheme to ``KINDS`` in ``target.py``. ``MemoryStore`` in
``tests/unit/publish/bucket/test_target.py`` is such a store, in memory; give yours to the same tests. A target that is
not a store of files, such as a server with an API of its own, implements ``Target`` of ``target.py`` instead (and,
where packages can be yanked there, ``MaintainedTarget``), as ``server/`` and ``third_party/`` do.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from channel_tools.system.errors import ChannelError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.records import Stamp
    from channel_tools.system.progress import Task

CONNECTIONS = 8
"""How many requests are made at the same time."""
FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "public, no-cache"
"""Caches keep the object and revalidate it each time."""
NO_CONDITIONS_HINT: Final = (
    "use an object store with conditional writes (If-None-Match, If-Match), such as AWS S3, MinIO or Cloudflare R2; "
    "without them two publishers could overwrite each other"
)
NEVER_CHANGE_HINT: Final = "published files never change: raise the recipe's build number and build again"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """The headers that readers get with an object."""

    content_type: str = "application/octet-stream"
    cache_control: str = "no-store"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectHead:
    """An object's metadata in the store; ``age_s`` is by the store's own clock."""

    size_bytes: int
    etag: str
    metadata: Mapping[str, str]
    age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A package file and its key; ``stamp`` is the file's state when it was checked."""

    key: str
    path: Path
    sha256: str
    stamp: Stamp


class Store(Protocol):
    """Objects under keys; see the module's table for what each method must guarantee."""

    @property
    def name(self) -> str:
        """The store's name for messages: its address and the server's."""
        ...

    def url(self, key: str) -> str:
        """An object's address, for messages."""
        ...

    def head(self, key: str) -> ObjectHead | None:
        """The object's metadata, None if there is no such object."""
        ...

    def get(self, key: str) -> tuple[bytes, ObjectHead] | None:
        """The whole object, None if there is no such object; only for objects that fit into memory."""
        ...

    def stream(self, key: str) -> Iterator[bytes]:
        """The bytes of an object of any size. Raises NetworkError if the transfer is cut off."""
        ...

    def put(
        self, key: str, body: bytes, *, served: Served, replaces: str | None, conditional: bool = True
    ) -> str | None:
        """Write an object if the present ETag is ``replaces`` (None: no object yet); returns the new ETag.

        Returns None, and changes nothing, if there is another object. With ``conditional`` off it is always written:
        for names that are the hash of the bytes.
        """
        ...

    def send(self, uploads: Sequence[Upload], task: Task, *, resume: Collection[str]) -> None:
        """Send package files to keys that have no object; ``resume`` are keys that an earlier send may have started.

        Raises ChannelError if a key has got other bytes since, IntegrityError if a file changed after it was checked.
        """
        ...

    def copy(self, source: tuple[str, ObjectHead], key: str, *, served: Served) -> bool:
        """Copy an object to ``key``; False if ``key`` has an object. Raises IntegrityError if the source changed."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys that start with ``prefix``, sorted."""
        ...

    def folders(self, prefix: str) -> Sequence[str]:
        """The names directly below ``prefix`` (which ends with a slash) that have something below them."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects."""
        ...

    def abandon(self, keys: Iterable[str]) -> None:
        """Drop what is left of sends of these keys that were cut off."""
        ...


def served_package(sha256: str) -> Served:
    """The headers of a package: it never changes, so readers may cache it forever."""
    return Served(cache_control=FOREVER, metadata={"sha256": sha256})


def sha256_of_object(store: Store, key: str) -> str | None:
    """The sha256 in an object's metadata, computed if that has none; None if there is no object."""
    head = store.head(key)
    return None if head is None else _sha256(store, key, head)


def _sha256(store: Store, key: str, head: ObjectHead) -> str:
    if stated := head.metadata.get("sha256"):
        return stated
    digest = hashlib.sha256()
    for chunk in store.stream(key):
        digest.update(chunk)
    return digest.hexdigest()


def require_bytes(store: Store, key: str, sha256: str) -> None:
    """Raise ChannelError unless the object has these bytes."""
    stored = sha256_of_object(store, key)
    if stored != sha256:
        content = "nothing" if stored is None else f"other bytes (sha256 {stored})"
        message = f"{store.url(key)}: the bucket has {content} under this name; expected sha256 {sha256}"
        raise ChannelError(message, hint=NEVER_CHANGE_HINT)


def copy_package(store: Store, source: str, key: str, sha256: str) -> None:
    """Have the store copy a package object, unless ``key`` already has the same bytes.

    Raises IntegrityError if the source is not the expected package, ChannelError if ``key`` has other bytes.
    """
    head = store.head(source)
    if head is None or _sha256(store, source, head) != sha256:
        message = f"{store.url(source)}: is missing, or has other bytes than were published"
        raise IntegrityError(message, hint="publish the package again from an intact copy")
    if not store.copy((source, head), key, served=served_package(sha256)):
        require_bytes(store, key, sha256)


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call ``function`` with each item, a few at a time; the first error in order is raised, the rest is not started.

    All threads have ended by then; an interrupt does not wait for requests under way.
    """
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        results = [future.result() for future in [pool.submit(function, item) for item in items]]
    except BaseException as err:
        pool.shutdown(wait=isinstance(err, Exception), cancel_futures=True)
        raise
    pool.shutdown()
    return results
