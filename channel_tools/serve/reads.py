# SPDX-License-Identifier: BSD-3-Clause
"""Reads: the served files, which bytes of one a response has, and how they are sent.

A file is checked (lstat) on every request and read again if it was replaced, so what is published is seen at once and
the server need not be notified. It is opened beneath its channel's folder (system/beneath.py), and what was opened is
what is kept and sent: a link that is exchanged meanwhile changes nothing. The cache is bounded by bytes; of big files
one piece for each client is in memory. For responses see RFC 9110, sections 13 and 14. A ``Range`` header that
is not understood, or asks for too much at once (many ranges, overlapping ranges), is ignored: the whole file is a
correct response to it.
"""

from __future__ import annotations

import email.utils
import itertools
import os
import re
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

from channel_tools.serve.connection import connection_of
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelToolsError, raise_without_means

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from starlette.types import Message, Receive, Scope, Send

    from channel_tools.serve.access.addresses import ChannelFile
    from channel_tools.serve.connection import Connection


Headers = list[tuple[bytes, bytes]]
Signature = tuple[int, int, int, int, int]

_CONTENT_TYPES = {
    ".json": b"application/json",
    ".html": b"text/html; charset=utf-8",
    ".xml": b"application/xml",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
}
_OTHER_CONTENT_TYPE = b"application/octet-stream"
_A_YEAR_S = 365 * 24 * 3600
IN_MEMORY_LIMIT_BYTES = 64 << 10
"""For one file or response: what a client has not yet taken stays in memory, and there may be a thousand clients."""
DEFAULT_MEMORY_BYTES = 32 << 20
_PIECE_BYTES = 48 << 10
"""How much of a big file is read for one client at a time."""
_ENTRIES_LIMIT = 20_000
OK = 200
PARTIAL_CONTENT = 206
NOT_MODIFIED = 304
RANGE_NOT_SATISFIABLE = 416
RANGES_LIMIT = 16
_HEADER_LIMIT = 512
_BOUNDARY = b"9f3b1c7e5a2d48609f3b1c7e5a2d4860"
_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedFile:
    """One state of a file. ``content`` is None if it is too big to be kept in memory."""

    path: str
    signature: Signature
    size_bytes: int
    etag: bytes
    modified: bytes
    content_type: bytes
    validators: tuple[Headers, Headers]
    """The headers of every response for the file, for a private and for a public channel."""
    whole: tuple[Headers, Headers]
    """The headers of a response with the whole file, for a private and for a public channel."""
    content: bytes | None
    never_changes: bool
    """As of its ChannelFile."""


class FileCache:
    """The served files of one process below ``root``, the folder of all channels."""

    def __init__(self, root: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._root = str(root)
        self._channels = root
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._files: OrderedDict[ChannelFile, CachedFile] = OrderedDict()

    def find(self, wanted: ChannelFile) -> CachedFile | None:
        """The file in its present state; None if there is no such file that may be served.

        Raises WithoutMeansError if it cannot be read now.
        """
        cached = self._files.get(wanted)
        path = cached.path if cached is not None else "/".join((self._root, *wanted.parts))
        try:
            status = os.lstat(path)
        except OSError as err:
            raise_without_means(err)
            self._forget(wanted)
            return None
        if cached is not None and cached.signature == signature_of(status):
            self._files.move_to_end(wanted)
            return cached
        self._forget(wanted)
        return self._load(wanted, path)

    def _load(self, wanted: ChannelFile, path: str) -> CachedFile | None:
        channel, *below = wanted.parts
        try:
            descriptor = Beneath(root=self._channels / channel).open_file("/".join(below))
        except ChannelToolsError:
            return None
        except OSError as err:
            raise_without_means(err)
            return None
        try:
            status = os.fstat(descriptor)
            small = status.st_size <= IN_MEMORY_LIMIT_BYTES
            content = os.read(descriptor, status.st_size + 1) if small else None
        except OSError as err:
            raise_without_means(err)
            return None
        finally:
            os.close(descriptor)
        if content is not None and len(content) != status.st_size:
            return None  # another program is writing it in place
        file = _cached_file(path, status, content, never_changes=wanted.never_changes)
        self._keep(wanted, file)
        return file

    def _keep(self, wanted: ChannelFile, file: CachedFile) -> None:
        self._files[wanted] = file
        self._used_bytes += _weight(file)
        while self._used_bytes > self._memory_bytes or len(self._files) > _ENTRIES_LIMIT:
            self._forget(next(iter(self._files)))

    def _forget(self, wanted: ChannelFile) -> None:
        file = self._files.pop(wanted, None)
        if file is not None:
            self._used_bytes -= _weight(file)


def _cached_file(path: str, status: os.stat_result, content: bytes | None, *, never_changes: bool) -> CachedFile:
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'.encode()
    modified = email.utils.formatdate(status.st_mtime, usegmt=True).encode()
    content_type = _CONTENT_TYPES.get(os.path.splitext(path)[1], _OTHER_CONTENT_TYPE)  # noqa: PTH122 - of a plain name
    length = str(status.st_size).encode()
    # clients revalidate indexes each time (a 304 is cheap); what never changes is never requested again
    lasting = b"max-age=%d, immutable" % _A_YEAR_S if never_changes else b"no-cache"
    private, public = (
        [(b"etag", etag), (b"last-modified", modified), (b"cache-control", b"%b, %b" % (privacy, lasting))]
        for privacy in (b"private", b"public")
    )
    body: Headers = [(b"content-type", content_type), (b"content-length", length), (b"accept-ranges", b"bytes")]
    return CachedFile(
        path=path,
        signature=signature_of(status),
        size_bytes=status.st_size,
        etag=etag,
        modified=modified,
        content_type=content_type,
        validators=(private, public),
        whole=(body + private, body + public),
        content=content,
        never_changes=never_changes,
    )


def signature_of(status: os.stat_result) -> Signature:
    """A value that differs between two files and two states of one: nobody can choose an inode's time of change."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev


def _weight(file: CachedFile) -> int:
    return len(file.content or b"") + 1024


def parse_ranges(header: bytes, total: int) -> tuple[range, ...] | None:
    """The ranges of ``total`` bytes that a ``Range`` header requests, in its order; () if none of them is in the file.

    None means that the header must be ignored.
    """
    text = header.decode("latin-1").strip()
    if len(text) > _HEADER_LIMIT or not text.startswith("bytes="):
        return None
    parts = [part.strip(" \t") for part in text.removeprefix("bytes=").split(",")]
    parts = [part for part in parts if part]
    if not parts or len(parts) > RANGES_LIMIT:
        return None
    found: list[range] = []
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


def _range_of(first: str, last: str, total: int) -> range | None:
    """One range cut to the file's size; None if none of it is in the file."""
    if not first:
        start, end = max(0, total - int(last)), total
    else:
        start, end = int(first), min(total, int(last) + 1 if last else total)
    return range(start, end) if start < end else None


def _overlap(ranges: list[range]) -> bool:
    ordered = sorted(ranges, key=lambda one: one.start)
    return any(later.start < earlier.stop for earlier, later in itertools.pairwise(ordered))


def _content_range(part: range, total: int) -> bytes:
    return f"bytes {part.start}-{part.stop - 1}/{total}".encode()


def is_unchanged(etag: bytes, modified: bytes, *, if_none_match: bytes | None, if_modified_since: bytes | None) -> bool:
    """Whether the client has this state of the file; like nginx, a date counts only if it is exactly the same."""
    if if_none_match is not None:
        tags = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
        return if_none_match.strip() == b"*" or etag in tags
    return if_modified_since is not None and if_modified_since.strip() == modified


def range_applies(etag: bytes, modified: bytes, if_range: bytes | None) -> bool:
    """Whether the ``Range`` of a request applies to this state of the file; weak tags never match."""
    return if_range is None or if_range.strip() in {etag, modified}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadResponse:
    """Status and headers; ``body`` is a sequence of bytes and of byte ranges of the file."""

    status: int
    headers: Headers
    body: tuple[bytes | range, ...] = ()


def respond_to_read(file: CachedFile, request: Mapping[bytes, bytes], *, public: bool) -> ReadResponse:
    """The response to a GET for the file; ``request`` are its headers, names in lower case."""
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
    whole = file.content if file.content is not None else range(file.size_bytes)
    return ReadResponse(status=OK, headers=file.whole[public], body=(whole,))


def _partial_response(file: CachedFile, ranges: tuple[range, ...], *, public: bool) -> ReadResponse:
    if not ranges:
        unsatisfiable = (b"content-range", f"bytes */{file.size_bytes}".encode())
        headers = [unsatisfiable, (b"content-length", b"0"), *file.validators[public]]
        return ReadResponse(status=RANGE_NOT_SATISFIABLE, headers=headers)
    if len(ranges) == 1:
        only = ranges[0]
        headers = [
            (b"content-type", file.content_type),
            (b"content-length", str(len(only)).encode()),
            (b"content-range", _content_range(only, file.size_bytes)),
            *file.validators[public],
        ]
        return ReadResponse(status=PARTIAL_CONTENT, headers=headers, body=ranges)
    return _multipart_response(file, ranges, public=public)


def _multipart_response(file: CachedFile, ranges: tuple[range, ...], *, public: bool) -> ReadResponse:
    body: list[bytes | range] = []
    for one in ranges:
        content_range = _content_range(one, file.size_bytes)
        body.append(
            b"\r\n--%s\r\nContent-Type: %s\r\nContent-Range: %s\r\n\r\n" % (_BOUNDARY, file.content_type, content_range)
        )
        body.append(one)
    body.append(b"\r\n--%s--\r\n" % _BOUNDARY)
    length = sum(map(len, body))
    headers = [
        (b"content-type", b"multipart/byteranges; boundary=" + _BOUNDARY),
        (b"content-length", str(length).encode()),
        *file.validators[public],
    ]
    return ReadResponse(status=PARTIAL_CONTENT, headers=headers, body=tuple(body))


class FileReplacedError(Exception):
    """The file was replaced by another one between the check and opening it."""


async def send_response(
    send: Send, response: ReadResponse, file: CachedFile, connection: Connection, *, head: bool
) -> None:
    """Send status, headers and, unless ``head``, the body.

    Raises FileReplacedError or WithoutMeansError before anything was sent, ConnectionError if the body could not be
    sent completely.
    """
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    if not head and file.content is None and any(isinstance(part, range) for part in response.body):
        await _send_from_disk(send, start, response, file, connection)
        return
    await send(start)
    body = b"" if head else _body_in_memory(response, file.content or b"")
    await send({"type": "http.response.body", "body": body})


def _body_in_memory(response: ReadResponse, content: bytes) -> bytes:
    """The body from ``content``; a single part is not copied."""
    parts = [part if isinstance(part, bytes) else content[part.start : part.stop] for part in response.body]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def open_unchanged(file: CachedFile) -> int:
    """A descriptor of the file in the state in which it was opened beneath its channel's folder.

    It is opened by path, which takes a third of the time; that it is the same file is checked afterwards, so it does
    not matter which way the path went. Raises FileReplacedError, WithoutMeansError.
    """
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as err:
        raise_without_means(err)
        raise FileReplacedError(file.path) from err
    if signature_of(os.fstat(descriptor)) == file.signature:
        return descriptor
    os.close(descriptor)
    raise FileReplacedError(file.path)


async def _send_from_disk(
    send: Send, start: Message, response: ReadResponse, file: CachedFile, connection: Connection
) -> None:
    descriptor = open_unchanged(file)
    try:
        await send(start)
        for part in response.body:
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                await _send_part(send, descriptor, part, connection)
        await send({"type": "http.response.body", "body": b""})
    finally:
        os.close(descriptor)


async def _send_part(send: Send, descriptor: int, part: range, connection: Connection) -> None:
    """Send bytes of an open file as a part of a body, a piece when the client has taken the one before.

    Raises ConnectionError, with the connection closed, if they could not be sent.
    """
    for start in part[::_PIECE_BYTES]:
        await connection.wait_for_room()  # before it is read: a client that takes nothing has one piece in memory
        if connection.has_ended():
            raise ConnectionError("the client closed the connection")
        try:
            body = _read_exactly(descriptor, start, min(_PIECE_BYTES, part.stop - start))
        except OSError as err:
            connection.abort()
            raise ConnectionError(str(err)) from err
        message = {"type": "http.response.body", "body": body, "more_body": True}
        del body  # uvicorn has a copy of it while it waits
        await send(message)
        del message


def _read_exactly(descriptor: int, start: int, size: int) -> bytes:
    """Bytes of an open file. Raises OSError if they cannot be read or there are fewer."""
    piece = os.pread(descriptor, size, start)
    if len(piece) < size:
        raise OSError("the file became shorter while it was sent")
    return piece


class ResponseCutError(Exception):
    """The client left before it had the whole response.

    Not an OSError, because OSErrors get a response, which cannot be sent once another one has started.
    """


class SpooledResponse(Response):
    """A Response whose body is kept in a file, of which one piece is in memory."""

    def __init__(self, content: bytes, status_code: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(b"", status_code, {**headers, "content-length": str(len(content))}, media_type)
        self._size = len(content)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed after sending
        self._file.write(content)
        self._file.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send it. Raises ResponseCutError, with the connection closed, if the client has left."""
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                try:
                    await _send_part(send, self._file.fileno(), range(self._size), connection_of(scope))
                except ConnectionError as err:
                    raise ResponseCutError(str(err)) from err
            await send({"type": "http.response.body", "body": b""})
