# SPDX-License-Identifier: BSD-3-Clause
"""Finds where a request ends, and how much of it is framing: headers, chunk sizes and extensions, trailers.

uvicorn's protocol takes everything that arrives, keeps every trailer, and makes an object of every pipelined request at
once. So it is given one request at a time, as many bytes as ``Framing`` allows, and nothing that has too much framing.
A parser of the same kind as uvicorn's reads the same bytes first, and decides where headers and messages end. If that
is not where ``Framing`` found the end, the request is ambiguous and is rejected, as are requests with two values for a
header that has one, and without a valid ``Host`` (RFC 9112, 3.2).
"""

from __future__ import annotations

import contextlib
import enum
import re

import httptools

HEADER_LIMIT_BYTES = 16 << 10
HEADERS_LIMIT = 100
"""The most headers, and the most trailers, that a request may have."""
_LINE_END = b"\r\n"
_END_OF_HEADERS = _LINE_END * 2
_OVERLAP = len(_END_OF_HEADERS) - 1
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_ONCE = {
    name: 1 << number
    for number, name in enumerate(
        (
            b"host",
            b"authorization",
            b"content-length",
            b"content-range",
            b"content-type",
            b"if-modified-since",
            b"if-range",
            b"range",
            b"x-api-key",
            b"x-checksum-sha256",
        )
    )
}
"""Headers with one value, a bit each: of two, a proxy and the application may take different ones (RFC 9110, 5.3)."""
_HOST_BIT = _ONCE[b"host"]
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_BAD_REQUEST = b"400 Bad Request"
_TOO_LARGE = b"431 Request Header Fields Too Large"


class FramingError(Exception):
    """The request is rejected; ``status`` is the status line of the response, without the version."""

    def __init__(self, status: bytes) -> None:
        super().__init__(status)
        self.status = status


class _Part(enum.Enum):
    """The part of a request that the next byte belongs to."""

    HEADERS = enum.auto()
    BODY = enum.auto()
    CHUNK_SIZE = enum.auto()
    CHUNK = enum.auto()
    TRAILERS = enum.auto()


class Framing:
    """Follows the requests of one connection."""

    __slots__ = (
        "_begun",
        "_doubtful",
        "_ended",
        "_host",
        "_line",
        "_names",
        "_once",
        "_overhead",
        "_parser",
        "_part",
        "_tail",
        "body_bytes",
        "header_bytes",
        "length",
        "remaining",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_data_after_close=True
        )  # as uvicorn sets it, so that both parse alike
        self._part = _Part.HEADERS
        self._begun = self._ended = self._doubtful = False
        self._once = 0
        """The bits of those headers in _ONCE that the present request has."""
        self._host: bytes | None = None
        """The last valid Host: it is nearly always the same for all requests of a connection."""
        self._tail = self._line = b""
        self._names = self._overhead = 0
        self.header_bytes = self.body_bytes = 0
        """Bytes of framing in the present headers, and in the present or last body."""
        self.length = 0
        """The last ``Content-Length``."""
        self.remaining = 0
        """Bytes that certainly belong to the present body, or to the present chunk and the line end after it."""

    @property
    def in_headers(self) -> bool:
        """Whether the next byte belongs to the headers of a request."""
        return self._part is _Part.HEADERS

    def advance(self, data: bytes, start: int) -> int:
        """How many bytes of ``data`` from ``start`` on may be passed on: at least one, at most up to the request's end.

        Raises FramingError for a request that is malformed or has too much framing.
        """
        match self._part:
            case _Part.HEADERS:
                return self._headers(data, start)
            case _Part.BODY:
                return self._body(data, start)
            case _Part.CHUNK:
                return self._chunk(data, start)
            case _Part.CHUNK_SIZE:
                return self._chunk_size(data, start)
            case _Part.TRAILERS:
                return self._trailers(data, start)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser callback: a header or a trailer."""
        self._names += 1
        name = name.lower()
        bit = _ONCE.get(name)
        if bit is None or self._part is not _Part.HEADERS:
            return
        if bit == _HOST_BIT:
            if value != self._host:
                self._check_host(value)
        elif name == b"content-length":
            self.length = int(value) if value.isdigit() else 0  # the parser rejects anything else
        if self._once & bit:
            self._doubtful = True
        self._once |= bit

    def _check_host(self, value: bytes) -> None:
        if _HOST.fullmatch(value) is None:
            self._doubtful = True
        else:
            self._host = value

    def on_headers_complete(self) -> None:
        """Parser callback: the headers are complete."""
        self._begun = True
        if not self._once & _HOST_BIT and self._parser.get_http_version() != "1.0":
            self._doubtful = True

    def on_message_complete(self) -> None:
        """Parser callback: the request has ended."""
        self._ended = True

    def _headers(self, data: bytes, start: int) -> int:
        if not self.header_bytes:
            self._names = self._once = self.length = 0
        end_at = (self._tail + data[start : start + _OVERLAP]).find(_END_OF_HEADERS) if self._tail else -1
        if end_at >= 0:
            size = end_at + len(_END_OF_HEADERS) - len(self._tail)
        else:
            end_at = data.find(_END_OF_HEADERS, start)
            size = end_at + len(_END_OF_HEADERS) - start if end_at >= 0 else len(data) - start
        self._feed_headers(data, start, size)
        if self._begun and end_at >= 0 and not self._doubtful:
            self._begin_body()
        elif self._begun or self._ended:
            raise FramingError(_BAD_REQUEST)
        else:
            self._tail = b"" if end_at >= 0 else (self._tail + data[start : start + size])[-_OVERLAP:]
        return size

    def _begin_body(self) -> None:
        self._begun = False
        self._tail = self._line = b""
        self.header_bytes = self.body_bytes = self._overhead = self._names = 0
        self.remaining = self.length
        if self._ended:
            self._end(expected=not self.length)  # the parser sees no body where a request asks for another protocol
        else:
            self._part = _Part.BODY if self.length else _Part.CHUNK_SIZE

    def _body(self, data: bytes, start: int) -> int:
        size = min(len(data) - start, self.remaining)
        self._feed(data, start, size)
        self.remaining -= size
        self.body_bytes += size
        self._end(expected=self.remaining == 0)
        return size

    def _chunk(self, data: bytes, start: int) -> int:
        size = min(len(data) - start, self.remaining)
        self._feed(data, start, size)
        self.remaining -= size
        self.body_bytes += size
        if self.remaining == 0:
            self.body_bytes -= len(_LINE_END)
            self._part = _Part.CHUNK_SIZE
        self._end(expected=False)
        return size

    def _chunk_size(self, data: bytes, start: int) -> int:
        size, complete = _rest_of_line(data, start)
        self._overhead += size
        # sizes, extensions and line ends may be as many bytes as the chunks: a body of tinier ones is an attack
        if self._overhead > HEADER_LIMIT_BYTES + self.body_bytes or len(self._line) + size > HEADER_LIMIT_BYTES:
            raise FramingError(_BAD_REQUEST)
        self._feed(data, start, size)
        self._line += data[start : start + size]
        if complete:
            match = _CHUNK_SIZE.match(self._line)
            if match is None:
                raise FramingError(_BAD_REQUEST)
            chunk, self._line = int(match[0], 16), b""
            self.remaining = chunk + len(_LINE_END) if chunk else 0
            self._overhead += len(_LINE_END)
            self._part = _Part.CHUNK if chunk else _Part.TRAILERS
        self._end(expected=False)
        return size

    def _trailers(self, data: bytes, start: int) -> int:
        size, _complete = _rest_of_line(data, start)
        self._feed_headers(data, start, size)
        if self._ended:
            self._end(expected=True)
        return size

    def _feed_headers(self, data: bytes, start: int, size: int) -> None:
        """Like _feed, for headers and trailers, whose bytes and number are limited."""
        self.header_bytes += size
        if self.header_bytes > HEADER_LIMIT_BYTES:
            raise FramingError(_TOO_LARGE)
        self._feed(data, start, size)
        if self._names > HEADERS_LIMIT:
            raise FramingError(_TOO_LARGE)

    def _feed(self, data: bytes, start: int, size: int) -> None:
        piece = data if size == len(data) else data[start : start + size]
        with contextlib.suppress(httptools.HttpParserUpgrade):  # to another protocol: we stay with HTTP
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserError:
                raise FramingError(_BAD_REQUEST) from None

    def _end(self, *, expected: bool) -> None:
        """Continue with the next request, if the parser has seen the end of this one."""
        if self._ended != expected or self._begun:
            raise FramingError(_BAD_REQUEST)
        if self._ended:
            self._ended = False
            self.header_bytes = 0
            self._part = _Part.HEADERS


def _rest_of_line(data: bytes, start: int) -> tuple[int, bool]:
    """How many bytes from ``start`` belong to the present line, and whether its end is among them."""
    end = data.find(b"\n", start)
    return (end + 1 - start, True) if end >= 0 else (len(data) - start, False)
