# SPDX-License-Identifier: BSD-3-Clause
"""The response to a read: which bytes of the file it has (RFC 9110, sections 13 and 14), and how they are sent.

A ``Range`` header that is not understood, or asks for too much at once (many ranges, ranges that overlap), counts as
absent: the whole file is a right response to it. Small files come from memory, others from the kernel.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.serve.reads.file_cache import CachedFile, Headers, signature_of
from channel_tools.system.errors import raise_without_means

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Send

    from channel_tools.serve.connection import Connection

OK = 200
PARTIAL_CONTENT = 206
NOT_MODIFIED = 304
RANGE_NOT_SATISFIABLE = 416
RANGES_LIMIT = 16
_HEADER_LIMIT = 512
_BOUNDARY = b"9f3b1c7e5a2d48609f3b1c7e5a2d4860"
_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteRange:
    """Bytes ``start`` to ``end``, which is not included."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.start

    def content_range(self, total: int) -> bytes:
        """The value of ``Content-Range``."""
        return f"bytes {self.start}-{self.end - 1}/{total}".encode()


def parse_ranges(header: bytes, total: int) -> tuple[ByteRange, ...] | None:
    """The ranges that a ``Range`` header asks of ``total`` bytes, as asked; () when none of them is in the file.

    None means that the header is to be ignored.
    """
    text = header.decode("latin-1").strip()
    if len(text) > _HEADER_LIMIT or not text.startswith("bytes="):
        return None
    parts = [part.strip(" \t") for part in text.removeprefix("bytes=").split(",")]
    parts = [part for part in parts if part]
    if not parts or len(parts) > RANGES_LIMIT:
        return None
    found: list[ByteRange] = []
    for part in parts:
        matched = _RANGE.fullmatch(part)
        if matched is None or not any(matched.groups()):
            return None
        first, last = matched.groups()
        if first and last and int(last) < int(first):
            return None
        one = _range_of(first, last, total)
        if one is not None:
            found.append(one)
    return None if _overlap(found) else tuple(found)


def _range_of(first: str, last: str, total: int) -> ByteRange | None:
    """One range cut to the file; None when none of it is there."""
    if not first:
        start, end = max(0, total - int(last)), total
    else:
        start, end = int(first), min(total, int(last) + 1 if last else total)
    return ByteRange(start=start, end=end) if start < end else None


def _overlap(ranges: list[ByteRange]) -> bool:
    ordered = sorted(ranges, key=lambda one: one.start)
    return any(later.start < earlier.end for earlier, later in itertools.pairwise(ordered))


def is_unchanged(etag: bytes, modified: bytes, *, if_none_match: bytes | None, if_modified_since: bytes | None) -> bool:
    """Whether the client has this state of the file; as nginx, a date counts only when it is the very same."""
    if if_none_match is not None:
        tags = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
        return if_none_match.strip() == b"*" or etag in tags
    return if_modified_since is not None and if_modified_since.strip() == modified


def range_applies(etag: bytes, modified: bytes, if_range: bytes | None) -> bool:
    """Whether the ``Range`` of a request holds for this state of the file; weak tags never do."""
    return if_range is None or if_range.strip() in {etag, modified}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadResponse:
    """Status and headers; ``body`` are bytes and ranges of the file, in order."""

    status: int
    headers: Headers
    body: tuple[bytes | ByteRange, ...] = ()


def respond_to_read(file: CachedFile, request: Mapping[bytes, bytes], *, public: bool) -> ReadResponse:
    """The response to a GET for the file; ``request`` are its headers in small letters."""
    if is_unchanged(
        file.etag,
        file.modified,
        if_none_match=request.get(b"if-none-match"),
        if_modified_since=request.get(b"if-modified-since"),
    ):
        return ReadResponse(status=NOT_MODIFIED, headers=file.validators[public])
    wanted = request.get(b"range")
    if wanted is not None and range_applies(file.etag, file.modified, request.get(b"if-range")):
        ranges = parse_ranges(wanted, file.size_bytes)
        if ranges is not None:
            return _partial_response(file, ranges, public=public)
    whole = file.content if file.content is not None else ByteRange(start=0, end=file.size_bytes)
    return ReadResponse(status=OK, headers=file.whole[public], body=(whole,))


def _partial_response(file: CachedFile, ranges: tuple[ByteRange, ...], *, public: bool) -> ReadResponse:
    if not ranges:
        unsatisfiable = (b"content-range", f"bytes */{file.size_bytes}".encode())
        headers = [unsatisfiable, (b"content-length", b"0"), *file.validators[public]]
        return ReadResponse(status=RANGE_NOT_SATISFIABLE, headers=headers)
    if len(ranges) == 1:
        only = ranges[0]
        headers = [
            (b"content-type", file.content_type),
            (b"content-length", str(only.size_bytes).encode()),
            (b"content-range", only.content_range(file.size_bytes)),
            *file.validators[public],
        ]
        return ReadResponse(status=PARTIAL_CONTENT, headers=headers, body=ranges)
    return _multipart_response(file, ranges, public=public)


def _multipart_response(file: CachedFile, ranges: tuple[ByteRange, ...], *, public: bool) -> ReadResponse:
    body: list[bytes | ByteRange] = []
    for one in ranges:
        content_range = one.content_range(file.size_bytes)
        body.append(
            b"\r\n--%s\r\nContent-Type: %s\r\nContent-Range: %s\r\n\r\n" % (_BOUNDARY, file.content_type, content_range)
        )
        body.append(one)
    body.append(b"\r\n--%s--\r\n" % _BOUNDARY)
    length = sum(len(part) if isinstance(part, bytes) else part.size_bytes for part in body)
    headers = [
        (b"content-type", b"multipart/byteranges; boundary=" + _BOUNDARY),
        (b"content-length", str(length).encode()),
        *file.validators[public],
    ]
    return ReadResponse(status=PARTIAL_CONTENT, headers=headers, body=tuple(body))


class FileReplacedError(Exception):
    """The file was replaced by another one between looking at it and opening it."""


async def send_response(
    send: Send, response: ReadResponse, file: CachedFile, connection: Connection, *, head: bool
) -> None:
    """Send status, headers and, unless ``head``, the body.

    Raises FileReplacedError or WithoutMeansError before anything was sent, ConnectionError when the body could not be
    sent as a whole.
    """
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    if not head and file.content is None and any(isinstance(part, ByteRange) for part in response.body):
        await _send_from_disk(send, start, response, file, connection)
        return
    await send(start)
    body = b"" if head else _body_in_memory(response, file.content or b"")
    await send({"type": "http.response.body", "body": body})


def _body_in_memory(response: ReadResponse, content: bytes) -> bytes:
    """A single part is not copied."""
    parts = [part if isinstance(part, bytes) else content[part.start : part.end] for part in response.body]
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send_from_disk(
    send: Send, start: Message, response: ReadResponse, file: CachedFile, connection: Connection
) -> None:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        raise_without_means(err)
        raise FileReplacedError(file.path) from err
    try:
        if signature_of(os.fstat(descriptor)) != file.signature:
            raise FileReplacedError(file.path)
        await send(start)
        for part in response.body:
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                await connection.send_file(send, descriptor, part.start, part.end)
        await send({"type": "http.response.body", "body": b""})
    finally:
        os.close(descriptor)
