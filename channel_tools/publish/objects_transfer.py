# SPDX-License-Identifier: BSD-3-Clause
"""Packages into a bucket: sent in parallel parts, or copied by the server from where it has them.

A package object is only ever created, never replaced, and says its sha256 in its metadata. An upload that was cut off
goes on with the parts that are missing; those that arrived are recognised by their MD5, so no record of them is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from channel_tools.channel.records import stamp_of
from channel_tools.errors import ChannelError, IntegrityError
from channel_tools.publish.objects_errors import ConditionFailedError, NotThereError
from channel_tools.publish.objects_store import CONNECTIONS, Served, md5_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel.records import Stamp
    from channel_tools.progress import Task
    from channel_tools.publish.objects_store import ObjectStore

PART_BYTES = 8 << 20
_PARTS_LIMIT = 10_000
_COPY_SPAN_BYTES = 1 << 30
_FOREVER = "public, max-age=31536000, immutable"
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A package file and the key it gets; ``stamp`` is what it was when it was checked."""

    key: str
    path: Path
    sha256: str
    stamp: Stamp


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """A package object and the key it gets beside the one it has."""

    key: str
    source: str
    sha256: str


def in_parallel(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call ``function`` with each item, a few at a time; the first error in order is raised, the rest not begun."""
    with _threads() as pool:
        return [future.result() for future in [pool.submit(function, item) for item in items]]


@contextlib.contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that have ended when the block has; but an interrupt does not wait for what is on the way."""
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        yield pool
    except Exception:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=True)


def served_package(sha256: str) -> Served:
    """Packages never change, so readers may keep them for good."""
    return Served(cache_control=_FOREVER, metadata={"sha256": sha256})


def upload_packages(
    store: ObjectStore, uploads: Sequence[Upload], task: Task, *, unfinished: Mapping[str, Sequence[str]]
) -> None:
    """Send package files; ``unfinished`` are the ids of uploads that were cut off, by key.

    Memory is bounded by a few parts. Raises ChannelError when a key has other bytes by then, IntegrityError when a file
    changed since it was checked, NetworkError; what has arrived is found by the next run.
    """
    sending = _Sending(store, task)
    with _threads() as pool:
        try:
            begun = [_begin(sending, upload, pool, unfinished.get(upload.key, ())) for upload in uploads]
            for upload, (upload_id, parts) in zip(uploads, begun, strict=True):
                _finish(sending, upload, upload_id, [part.result() for part in parts])
        except BaseException:
            sending.stopped.set()
            raise


def copy_package(store: ObjectStore, copy: Copy) -> Copy:
    """Let the server copy a package object, unless ``copy.key`` has the same bytes already.

    Raises IntegrityError when the source is not the package it should be, ChannelError when ``copy.key`` has others.
    """
    head = store.head(copy.source)
    if head is None or sha256_of_object(store, copy.source) != copy.sha256:
        message = f"s3://{store.bucket}/{copy.source}: is missing or has other bytes than were published"
        raise IntegrityError(message, hint="publish the package again from where it is sound")
    upload = store.begin_upload(copy.key, served=served_package(copy.sha256))
    try:
        starts = range(0, head.size_bytes, _COPY_SPAN_BYTES)
        spans = [(start, min(start + _COPY_SPAN_BYTES, head.size_bytes) - 1) for start in starts]
        etags = [
            store.copy_part(copy.key, upload, number, (copy.source, head.etag), span)
            for number, span in enumerate(spans, start=1)
        ]
    except (ConditionFailedError, NotThereError):
        message = f"s3://{store.bucket}/{copy.source}: changed or went while it was copied"
        raise IntegrityError(message, hint="run the same command again") from None
    if not store.complete_upload(copy.key, upload, etags):
        store.abort_upload(copy.key, upload)
        insist_on_bytes(store, copy.key, copy.sha256)
    return copy


def sha256_of_object(store: ObjectStore, key: str) -> str | None:
    """The sha256 that an object says it has, or has when it does not say; None when there is no object."""
    head = store.head(key)
    if head is None:
        return None
    if said := head.metadata.get("sha256"):
        return said
    digest = hashlib.sha256()
    for chunk in store.stream(key):
        digest.update(chunk)
    return digest.hexdigest()


def insist_on_bytes(store: ObjectStore, key: str, sha256: str) -> None:
    """Raise ChannelError unless the object has these bytes."""
    found = sha256_of_object(store, key)
    if found != sha256:
        held = "nothing" if found is None else f"other bytes (sha256 {found})"
        message = f"s3://{store.bucket}/{key}: the bucket holds {held} under this name, expected sha256 {sha256}"
        hint = "published files never change: raise the recipe's build number and build again"
        raise ChannelError(message, hint=hint)


class _Sending:
    """What the threads of an upload share."""

    def __init__(self, store: ObjectStore, task: Task) -> None:
        self.store = store
        self.stopped = threading.Event()
        self._task = task
        self._mutex = threading.Lock()

    def advance(self, amount: int, name: str) -> None:
        with self._mutex:
            self._task.advance(amount, detail=name)

    def whole(self, upload: Upload) -> str:
        """Send a small package at once."""
        body = _read(upload, 0, upload.stamp.size_bytes)
        _insist_unchanged(upload)
        etag = self.store.put(upload.key, body, served=served_package(upload.sha256), replaces=None)
        if etag is None:
            insist_on_bytes(self.store, upload.key, upload.sha256)
        self.advance(len(body), upload.path.name)
        return etag or ""

    def part(self, upload: Upload, upload_id: str, number: int, size_bytes: int, arrived: str | None) -> str:
        """Send a part unless its bytes have ``arrived`` (their ETag)."""
        if self.stopped.is_set():
            return ""
        body = _read(upload, (number - 1) * size_bytes, size_bytes)
        etag = arrived
        if arrived is None or arrived.strip('"') != md5_of(body):
            try:
                etag = self.store.put_part(upload.key, upload_id, number, body).etag
            except NotThereError:
                message = f"s3://{self.store.bucket}/{upload.key}: its upload was ended by somebody else"
                raise ChannelError(message, hint="run the same command again") from None
        self.advance(len(body), upload.path.name)
        return str(etag)


def _begin(
    sending: _Sending, upload: Upload, pool: ThreadPoolExecutor, unfinished: Sequence[str]
) -> tuple[str | None, list[Future[str]]]:
    """Start sending; returns the id of the upload in parts (None: sent at once) and what the threads will return."""
    size_bytes = upload.stamp.size_bytes
    if size_bytes <= PART_BYTES:
        return None, [pool.submit(sending.whole, upload)]
    store = sending.store
    arrived = {upload_id: store.parts(upload.key, upload_id) for upload_id in unfinished}
    chosen = max(arrived, key=lambda upload_id: len(arrived[upload_id]), default=None)
    for upload_id in arrived:
        if upload_id != chosen:
            store.abort_upload(upload.key, upload_id)
    etags = {} if chosen is None else {part.number: part.etag for part in arrived[chosen]}
    upload_id = chosen or store.begin_upload(upload.key, served=served_package(upload.sha256))
    part_bytes = max(PART_BYTES, -(-size_bytes // _PARTS_LIMIT))
    return upload_id, [
        pool.submit(sending.part, upload, upload_id, number, part_bytes, etags.get(number))
        for number in range(1, -(-size_bytes // part_bytes) + 1)
    ]


def _finish(sending: _Sending, upload: Upload, upload_id: str | None, etags: list[str]) -> None:
    """Make the parts the object, when the file is still the one that was checked."""
    if upload_id is None:
        return
    _insist_unchanged(upload)
    store = sending.store
    if not store.complete_upload(upload.key, upload_id, etags):
        store.abort_upload(upload.key, upload_id)
        insist_on_bytes(store, upload.key, upload.sha256)


def _insist_unchanged(upload: Upload) -> None:
    if stamp_of(upload.path) != upload.stamp:
        raise IntegrityError(f"{upload.path}: changed while it was published", hint="run the same command again")


def _read(upload: Upload, start: int, size_bytes: int) -> bytes:
    with upload.path.open("rb") as stream:
        stream.seek(start)
        return stream.read(size_bytes)
