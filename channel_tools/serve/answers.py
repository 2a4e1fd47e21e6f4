# SPDX-License-Identifier: BSD-3-Clause
"""What a read is answered with: status, headers and the parts of the body. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.serve.ranges import ByteRange, is_unchanged, parse_ranges, range_applies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.serve.hotfiles import Headers, ServedFile

OK = 200
PARTIAL_CONTENT = 206
NOT_MODIFIED = 304
RANGE_NOT_SATISFIABLE = 416

_BOUNDARY = b"9f3b1c7e5a2d48609f3b1c7e5a2d4860"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer; ``body`` are bytes and ranges of the file, in order."""

    status: int
    headers: Headers
    body: tuple[bytes | ByteRange, ...] = ()


def answer_read(file: ServedFile, request: Mapping[bytes, bytes], *, public: bool) -> Answer:
    """The answer to a GET for the file; ``request`` are its headers in small letters."""
    if is_unchanged(
        file.etag,
        file.modified,
        if_none_match=request.get(b"if-none-match"),
        if_modified_since=request.get(b"if-modified-since"),
    ):
        return Answer(status=NOT_MODIFIED, headers=file.validators[public])
    wanted = request.get(b"range")
    if wanted is not None and range_applies(file.etag, file.modified, request.get(b"if-range")):
        ranges = parse_ranges(wanted, file.size_bytes)
        if ranges is not None:
            return _answer_ranges(file, ranges, public=public)
    whole = file.content if file.content is not None else ByteRange(start=0, end=file.size_bytes)
    return Answer(status=OK, headers=file.whole[public], body=(whole,))


def _answer_ranges(file: ServedFile, ranges: tuple[ByteRange, ...], *, public: bool) -> Answer:
    if not ranges:
        unsatisfied = (b"content-range", f"bytes */{file.size_bytes}".encode())
        headers = [unsatisfied, (b"content-length", b"0"), *file.validators[public]]
        return Answer(status=RANGE_NOT_SATISFIABLE, headers=headers)
    if len(ranges) == 1:
        only = ranges[0]
        headers = [
            (b"content-type", file.content_type),
            (b"content-length", str(only.size_bytes).encode()),
            (b"content-range", only.content_range(file.size_bytes)),
            *file.validators[public],
        ]
        return Answer(status=PARTIAL_CONTENT, headers=headers, body=ranges)
    return _answer_multipart(file, ranges, public=public)


def _answer_multipart(file: ServedFile, ranges: tuple[ByteRange, ...], *, public: bool) -> Answer:
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
    return Answer(status=PARTIAL_CONTENT, headers=headers, body=tuple(body))
