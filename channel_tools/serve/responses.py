# SPDX-License-Identifier: BSD-3-Clause
"""Which response a GET for a file has: unchanged, whole, or some of its bytes (RFC 9110, sections 13 and 14).

A ``Range`` header that is not understood, or asks for too much at once (many ranges, overlapping ranges), is ignored:
the whole file is a correct response to it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.serve.files import CachedFile, Headers


OK = 200
PARTIAL_CONTENT = 206
NOT_MODIFIED = 304
RANGE_NOT_SATISFIABLE = 416
RANGES_LIMIT = 16
_HEADER_LIMIT = 512
_BOUNDARY = b"9f3b1c7e5a2d48609f3b1c7e5a2d4860"
_RANGE = re.compile(r"(\d{0,18})-(\d{0,18})")


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
    ranges: list[range] = []
    for part in parts:
        matched = _RANGE.fullmatch(part)
        if matched is None or not any(matched.groups()):
            return None
        first, last = matched.groups()
        if first and last and int(last) < int(first):
            return None
        part_range = _range_of(first, last, total)
        if part_range is not None:
            ranges.append(part_range)
    return None if _overlap(ranges) else tuple(ranges)


def _range_of(first: str, last: str, total: int) -> range | None:
    """One range cut to the file's size; None if none of it is in the file."""
    if not first:
        start, end = max(0, total - int(last)), total
    else:
        start, end = int(first), min(total, int(last) + 1 if last else total)
    return range(start, end) if start < end else None


def _overlap(ranges: list[range]) -> bool:
    ordered = sorted(ranges, key=lambda part: part.start)
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
    requested = request.get(b"range")
    if requested is not None and range_applies(file.etag, file.modified, request.get(b"if-range")):
        ranges = parse_ranges(requested, file.size_bytes)
        if ranges is not None:
            return _partial_response(file, ranges, public=public)
    body = file.content if file.content is not None else range(file.size_bytes)
    return ReadResponse(status=OK, headers=file.whole_headers[public], body=(body,))


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
    for part in ranges:
        content_range = _content_range(part, file.size_bytes)
        body.append(
            b"\r\n--%s\r\nContent-Type: %s\r\nContent-Range: %s\r\n\r\n" % (_BOUNDARY, file.content_type, content_range)
        )
        body.append(part)
    body.append(b"\r\n--%s--\r\n" % _BOUNDARY)
    length = sum(map(len, body))
    headers = [
        (b"content-type", b"multipart/byteranges; boundary=" + _BOUNDARY),
        (b"content-length", str(length).encode()),
        *file.validators[public],
    ]
    return ReadResponse(status=PARTIAL_CONTENT, headers=headers, body=tuple(body))
