# SPDX-License-Identifier: BSD-3-Clause
"""Packages into an S3-like store in parallel parts.

A package object is only ever created, never replaced, and says its sha256 in its metadata. An upload that was cut off
goes on with the parts that are missing; those that arrived are recognised by their MD5, so no record of them is kept.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

from channel_tools.channel.records import stamp_of
from channel_tools.publish.s3.errors import NotThereError
from channel_tools.publish.store import in_parallel, request_threads, require_bytes, served_package
from channel_tools.system.errors import ChannelError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from channel_tools.publish.s3.client import S3Store
    from channel_tools.publish.store import Upload
    from channel_tools.system.progress import Task

PART_BYTES = 8 << 20
_PARTS_LIMIT = 10_000


def upload_packages(store: S3Store, uploads: Sequence[Upload], task: Task, *, resume: Collection[str]) -> None:
    """Send package files; ``resume`` are keys whose uploads may have been cut off before.

    Memory is bounded by a few parts. Raises ChannelError when a key has other bytes by then, IntegrityError when a file
    changed since it was checked, NetworkError; what has arrived is found by the next run.
    """
    sending = _Sending(store, task)
    again = [upload.key for upload in uploads if upload.key in resume]
    unfinished = dict(zip(again, in_parallel(store.uploads, again), strict=True))
    with request_threads() as pool:
        try:
            begun = [_begin(sending, upload, pool, unfinished.get(upload.key, ())) for upload in uploads]
            for upload, (upload_id, parts) in zip(uploads, begun, strict=True):
                _finish(sending, upload, upload_id, [part.result() for part in parts])
        except BaseException:
            sending.stopped.set()
            raise


class _Sending:
    """What the threads of an upload share."""

    def __init__(self, store: S3Store, task: Task) -> None:
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
        _require_unchanged(upload)
        etag = self.store.put(upload.key, body, served=served_package(upload.sha256), replaces=None)
        if etag is None:
            require_bytes(self.store, upload.key, upload.sha256)
        self.advance(len(body), upload.path.name)
        return etag or ""

    def part(self, upload: Upload, upload_id: str, number: int, size_bytes: int, arrived: str | None) -> str:
        """Send a part unless its bytes have ``arrived`` (their ETag)."""
        if self.stopped.is_set():
            return ""
        body = _read(upload, (number - 1) * size_bytes, size_bytes)
        etag = arrived
        if arrived is None or arrived.strip('"') != hashlib.md5(body, usedforsecurity=False).hexdigest():
            try:
                etag = self.store.put_part(upload.key, upload_id, number, body)
            except NotThereError:
                message = f"{self.store.url(upload.key)}: its upload was ended by somebody else"
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
    etags = {} if chosen is None else arrived[chosen]
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
    _require_unchanged(upload)
    store = sending.store
    if not store.complete_upload(upload.key, upload_id, etags):
        store.abort_upload(upload.key, upload_id)
        require_bytes(store, upload.key, upload.sha256)


def _require_unchanged(upload: Upload) -> None:
    if stamp_of(upload.path) != upload.stamp:
        raise IntegrityError(f"{upload.path}: changed while it was published", hint="run the same command again")


def _read(upload: Upload, start: int, size_bytes: int) -> bytes:
    with upload.path.open("rb") as stream:
        stream.seek(start)
        return stream.read(size_bytes)
