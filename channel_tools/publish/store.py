# SPDX-License-Identifier: BSD-3-Clause
"""The store interface: what a bucket has to be able to do for channels to be kept in it.

Everything else about channels in a bucket (labels, sets, the writer's lease, indexes, promotion, yank, hotfix,
retention) is written once against this interface, in ``bucket/`` and ``channels.py``.

======= ============================================================================================================
method  what a store must guarantee
======= ============================================================================================================
get     (and head) What was written last, at once: a read after a write, also by another client, sees it. ``etag``
        changes with every write. ``age_s`` comes from the store's own clock, never from this machine's.
put     The whole object or nothing of it. The condition and the write are one step: of two writers that replace the
        same ``etag``, or create the same key, one gets None. A store that cannot promise this must not be used; the
        lease tries it out before anything is written.
send    A file of any size under a key that has none: seen whole or not at all, never over another object. What
        arrived before a failure may be used again by the next call (``resume``); memory is bounded.
copy    As send, from another object of the store, whose bytes do not come here.
keys    (and folders) All keys that begin with a prefix, in order, with those that were just written.
delete  Keys that are not there do not matter.
abandon What is left of sends that were cut off is given up.
======= ============================================================================================================

All of them may be called by several threads. They raise NetworkError (not reached, not let in; the message without
secrets), UsageError (no such bucket), IntegrityError (bytes changed on the way) and ChannelError (not supported).

To add another kind of store (another cloud's buckets, WebDAV with ``If-Match``): write one module with a class that
has these methods and a function ``open_x(address, environ)`` that returns ``BucketTarget(store=..., address=...,
prefix=...)``, and add its scheme to ``KINDS`` in ``target.py``. ``MemoryStore`` in
``tests/unit/publish/test_bucket.py`` is such a store, in memory; give yours to the same tests. A target that is not a
store of files, such as a server with an API of its own, implements ``Target`` of ``target.py`` instead (and, where
packages can be yanked there, ``MaintainedTarget``), as ``server/`` and ``third_party/`` do.
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
"""How many requests are under way at once."""
FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "public, no-cache"
"""Caches keep it and ask each time whether it is still the one."""
NO_CONDITIONS_HINT: Final = (
    "use an object store with conditional writes (If-None-Match, If-Match), such as AWS S3, MinIO or Cloudflare R2; "
    "without them two publishers could overwrite each other"
)
NEVER_CHANGE_HINT: Final = "published files never change: raise the recipe's build number and build again"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """With which headers an object is handed out to readers."""

    content_type: str = "application/octet-stream"
    cache_control: str = "no-store"
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectHead:
    """An object as the store describes it; ``age_s`` is by the store's own clock."""

    size_bytes: int
    etag: str
    metadata: Mapping[str, str]
    age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A package file and the key it gets; ``stamp`` is what it was when it was checked."""

    key: str
    path: Path
    sha256: str
    stamp: Stamp


class Store(Protocol):
    """Objects under keys; see the module's table for what each method must guarantee."""

    @property
    def name(self) -> str:
        """The store in messages: its address and the server's."""
        ...

    def url(self, key: str) -> str:
        """An object's address in messages."""
        ...

    def head(self, key: str) -> ObjectHead | None:
        """What the object is, None when there is none."""
        ...

    def get(self, key: str) -> tuple[bytes, ObjectHead] | None:
        """The whole object, None when there is none; only for what fits into memory."""
        ...

    def stream(self, key: str) -> Iterator[bytes]:
        """The bytes of an object of any size. Raises NetworkError when it is cut off."""
        ...

    def put(
        self, key: str, body: bytes, *, served: Served, replaces: str | None, conditional: bool = True
    ) -> str | None:
        """Write an object if what is there has the ETag ``replaces`` (None: if nothing is); returns its new ETag.

        Returns None, and changes nothing, when something else is there. With ``conditional`` off it is written anyhow:
        for names that are the hash of the bytes.
        """
        ...

    def send(self, uploads: Sequence[Upload], task: Task, *, resume: Collection[str]) -> None:
        """Send package files to keys that have no object; ``resume`` are keys that an earlier send may have begun.

        Raises ChannelError when a key has other bytes by then, IntegrityError when a file changed since it was checked.
        """
        ...

    def copy(self, source: tuple[str, ObjectHead], key: str, *, served: Served) -> bool:
        """Make ``key`` from another object; False when ``key`` has an object. Raises IntegrityError: source changed."""
        ...

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys that begin with ``prefix``, in order."""
        ...

    def folders(self, prefix: str) -> Sequence[str]:
        """The names directly below ``prefix`` (which ends with a slash) that have something below them."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects."""
        ...

    def abandon(self, keys: Iterable[str]) -> None:
        """Give up what sends of these keys left that were cut off."""
        ...


def served_package(sha256: str) -> Served:
    """Packages never change, so readers may keep them for good."""
    return Served(cache_control=FOREVER, metadata={"sha256": sha256})


def sha256_of_object(store: Store, key: str) -> str | None:
    """The sha256 that an object says it has, or has when it does not say; None when there is no object."""
    head = store.head(key)
    return None if head is None else _sha256(store, key, head)


def _sha256(store: Store, key: str, head: ObjectHead) -> str:
    if said := head.metadata.get("sha256"):
        return said
    digest = hashlib.sha256()
    for chunk in store.stream(key):
        digest.update(chunk)
    return digest.hexdigest()


def require_bytes(store: Store, key: str, sha256: str) -> None:
    """Raise ChannelError unless the object has these bytes."""
    found = sha256_of_object(store, key)
    if found != sha256:
        held = "nothing" if found is None else f"other bytes (sha256 {found})"
        message = f"{store.url(key)}: the bucket holds {held} under this name, expected sha256 {sha256}"
        raise ChannelError(message, hint=NEVER_CHANGE_HINT)


def copy_package(store: Store, source: str, key: str, sha256: str) -> None:
    """Have the store copy a package object, unless ``key`` has the same bytes already.

    Raises IntegrityError when the source is not the package it should be, ChannelError when ``key`` has others.
    """
    head = store.head(source)
    if head is None or _sha256(store, source, head) != sha256:
        message = f"{store.url(source)}: is missing or has other bytes than were published"
        raise IntegrityError(message, hint="publish the package again from where it is sound")
    if not store.copy((source, head), key, served=served_package(sha256)):
        require_bytes(store, key, sha256)


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call ``function`` with each item, a few at a time; the first error in order is raised, the rest not begun.

    All threads have ended then; but an interrupt does not wait for what is on the way.
    """
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        results = [future.result() for future in [pool.submit(function, item) for item in items]]
    except BaseException as err:
        pool.shutdown(wait=isinstance(err, Exception), cancel_futures=True)
        raise
    pool.shutdown()
    return results
