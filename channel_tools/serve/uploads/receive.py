# SPDX-License-Identifier: BSD-3-Clause
"""Receiving request bodies: files, to the disk and resumed where an earlier request ended, and JSON, in memory.

A partial file has one writer at a time, by its lock. A complete file is hashed, synced and moved to where nothing
writes to it any more, under the same lock; if its bytes are not those announced, it is deleted.

The JSON that a process has in memory at once is limited, so no client can fill it. Decoded, a document takes many times
its bytes, so only one large document is processed at a time, and few small ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from channel_tools.publish.server.protocol import ReceivedBytes
from channel_tools.serve.access.guard import RejectedError, busy_response
from channel_tools.serve.transfer import bounded
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelError, DiskFullError, IntegrityError, UsageError
from channel_tools.system.files import disk_full_reported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import Receive

    from channel_tools.conda.package import PackageRef
    from channel_tools.serve.uploads.checks import Limits
    from channel_tools.serve.uploads.store import Job
    from channel_tools.system.beneath import Beneath

_GATHERED_BYTES = 1 << 20
_SPARE_BYTES = 16 << 20
"""Bytes that stay free on the disk for indexes and logs."""
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_WAIT_HINT = "wait for that one to end"
_SMALL_BYTES = 128 << 10
_SMALL_AT_ONCE = 8
_MEMORY_BYTES = 32 << 20
"""The limit for all documents that are being received or wait to be processed."""
_Message = TypeVar("_Message")


class OffsetError(ChannelError):
    """The bytes sent do not follow those already received."""


class PartBusyError(ChannelError):
    """Another request is sending the same file at the same time."""


class ClientGoneError(ConnectionError):
    """The client closed the connection or stopped; what was received is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The bytes that a request announces: from ``start`` on, up to ``end`` if that is known."""

    start: int = 0
    end: int | None = None


def span_of(content_range: str | None, file: PackageRef) -> Span:
    """The span in ``Content-Range``; without it the whole file. Raises UsageError if it does not fit the file."""
    if content_range is None:
        return Span()
    match = _CONTENT_RANGE.fullmatch(content_range.strip())
    if match is None:
        raise UsageError(f"{file.key}: Content-Range {content_range!r}; expected bytes FIRST-LAST/{file.size_bytes}")
    first, last, total = (int(number) for number in match.groups())
    if total != file.size_bytes or not first <= last < total:
        message = f"{file.key}: Content-Range {content_range!r} does not fit a file of {file.size_bytes} bytes"
        raise UsageError(message, hint="send the file that was announced")
    return Span(start=first, end=last + 1)


async def receive_file(job: Job, file: PackageRef, span: Span, receive: Receive) -> ReceivedBytes:
    """Receive the body of a request into a file of a job.

    Raises OffsetError, PartBusyError, IntegrityError (other bytes, or more of them; what was received is deleted),
    DiskFullError and ClientGoneError, after which the partial file is kept.
    """
    with job.files.held() as files:
        opened = dataclasses.replace(job, files=files)
        if opened.is_complete(file):
            return ReceivedBytes(received=file.size_bytes, complete=True)
        check_space(opened.files, file.size_bytes - span.start)
        with opened.part_lock(file) as lock:
            if lock is None:
                raise PartBusyError(f"{file.key}: another request is sending it", hint=_WAIT_HINT)
            try:
                with disk_full_reported(job.folder):
                    return await _receive_locked(opened, file, span, receive)
            finally:
                opened.mark_used()


async def received_of(job: Job, file: PackageRef) -> ReceivedBytes:
    """How much of a file was received; a complete one that a killed process left unchecked is checked now.

    Raises PartBusyError while another request checks it.
    """
    size_bytes = job.received(file)
    if not job.is_complete(file) and size_bytes == file.size_bytes:
        with job.part_lock(file) as lock:
            try:
                if not job.is_complete(file):
                    if lock is None:
                        raise PartBusyError(f"{file.key}: another request is sending it", hint=_WAIT_HINT)
                    await asyncio.to_thread(_accept_part, job, file)
            except IntegrityError:
                size_bytes = 0  # it was deleted, and must be sent again
    if job.is_complete(file):
        return ReceivedBytes(received=file.size_bytes, complete=True)
    return ReceivedBytes(received=size_bytes, complete=False)


async def _receive_locked(job: Job, file: PackageRef, span: Span, receive: Receive) -> ReceivedBytes:
    if job.is_complete(file):
        return ReceivedBytes(received=file.size_bytes, complete=True)
    flags = os.O_RDWR | (os.O_TRUNC if span.start == 0 else 0)
    descriptor = job.files.open_to_write(job.part_name(file), flags, mode=0o644)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if span.start != size_bytes:
            message = f"{file.key}: bytes from {span.start} on were sent, but the server has {size_bytes} bytes"
            raise OffsetError(message, hint="continue from there")
        return await _receive_body(job, file, span, descriptor, receive)
    finally:
        os.close(descriptor)


async def _receive_body(job: Job, file: PackageRef, span: Span, descriptor: int, receive: Receive) -> ReceivedBytes:
    """Write what is received from ``span.start`` on, and accept the file with its last byte."""
    limit = file.size_bytes if span.end is None else span.end
    position, is_accepted = span.start, False

    def write(piece: bytes, *, is_last: bool) -> bool:
        write_all(descriptor, piece, position)
        if not (is_last and position + len(piece) == file.size_bytes):
            return False
        _accept(job, file, descriptor)
        return True

    async for piece, is_last in pieces(receive):
        if position + len(piece) > limit:
            os.ftruncate(descriptor, span.start)
            message = f"{file.key}: more than the {limit - span.start} announced bytes were sent"
            raise IntegrityError(message, hint="send the file that was announced")
        # in one thread's turn: what a small file takes is mostly turns
        is_accepted = await asyncio.to_thread(write, piece, is_last=is_last)
        position += len(piece)
    if span.end is not None and position != span.end:
        raise ClientGoneError(f"{file.key}: only {position - span.start} of {span.end - span.start} bytes were sent")
    if position == file.size_bytes and not is_accepted:
        await asyncio.to_thread(_accept, job, file, descriptor)
    return ReceivedBytes(received=position, complete=position == file.size_bytes)


async def pieces(receive: Receive) -> AsyncIterator[tuple[bytes, bool]]:
    """The body in pieces of a useful size, each with whether it is known to be the last.

    Raises ClientGoneError if the body ends early, after yielding what came, and SlowClientError.
    """
    receiving = bounded(receive)
    gathered: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receiving()
        has_ended = message["type"] == "http.disconnect"
        body = b"" if has_ended else message.get("body", b"")
        more = not has_ended and message.get("more_body", False)
        gathered.append(body)
        size += len(body)
        if size and (size >= _GATHERED_BYTES or not more):
            piece = b"".join(gathered)
            gathered, size = [], 0
            yield piece, not (more or has_ended)
        if has_ended:
            raise ClientGoneError("the client closed the connection")


def write_all(descriptor: int, piece: bytes, position: int) -> None:
    """Write the piece at the position, in as many calls as the system needs.

    Raises DiskFullError before it would use the space that must stay free on the disk.
    """
    status = os.fstatvfs(descriptor)
    _check_free(status.f_bavail * status.f_frsize, len(piece))
    view = memoryview(piece)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written


def _accept_part(job: Job, file: PackageRef) -> None:
    """As _accept, for a part that is not open."""
    descriptor = job.files.open_file(job.part_name(file))
    try:
        _accept(job, file, descriptor)
    finally:
        os.close(descriptor)


def _accept(job: Job, file: PackageRef, descriptor: int) -> None:
    """Move a part with all its bytes to the complete files. Raises IntegrityError if they are not those announced.

    ``descriptor`` is the part's, which is what is hashed and flushed to the disk.
    """
    part = job.part_name(file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(descriptor, "rb", closefd=False) as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if sha256 != file.sha256:
        job.files.remove(part)
        message = f"{file.key}: the received bytes have sha256 {sha256}; expected the announced {file.sha256}"
        raise IntegrityError(
            message, hint="send the file again; if that fails too, find out what changes it on the way"
        )
    os.fsync(descriptor)
    job.files.move(part, job.file_name(file))


def check_space(folder: Beneath, needed: int) -> None:
    """Make the folder. Raises DiskFullError if the disk has too little space for ``needed`` bytes."""
    with disk_full_reported(folder.path):
        free = folder.free_bytes()
    _check_free(free, needed)


def _check_free(free: int, needed: int) -> None:
    if needed + _SPARE_BYTES > free:
        message = f"the server has {free >> 20} MiB of disk space left, but {needed >> 20} MiB are still to be sent"
        raise DiskFullError(message, hint="ask the server's operator to free space; what was sent is kept for a day")


class Documents:
    """The JSON documents of one process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self._small = asyncio.Semaphore(_SMALL_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    @contextlib.asynccontextmanager
    async def read(self, request: Request, kind: type[_Message]) -> AsyncIterator[_Message]:
        """The body of a request as a message of this kind, while the block runs.

        Raises UsageError for an invalid or oversized message, RejectedError if too many arrive at once, and
        SlowClientError.
        """
        body, receiving = bytearray(), bounded(request.receive)
        try:
            more = True
            while more:
                message = await receiving()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError("the client closed the connection")
                piece = message.get("body", b"")
                more = message.get("more_body", False)
                body += piece
                self._held_bytes += len(piece)
                if len(body) > self._limits.document_bytes:
                    raise UsageError(f"the request is larger than {self._limits.document_bytes} bytes")
                if self._held_bytes > _MEMORY_BYTES:
                    raise RejectedError(busy_response())
            async with self._large if len(body) > _SMALL_BYTES else self._small:
                yield _decoded(bytes(body), kind)
        finally:
            self._held_bytes -= len(body)

    @contextlib.asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """While the block makes a large response, no large document is processed."""
        async with self._large:
            yield


def _decoded(body: bytes, kind: type[_Message]) -> _Message:
    try:
        return decode_json(body, kind)
    except ValueError as err:
        raise UsageError(f"the request is not valid: {err}") from None
