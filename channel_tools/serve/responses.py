# SPDX-License-Identifier: BSD-3-Clause
"""Which response a GET for a file has: unchanged, whole, or some of its bytes (RFC 9110, sections 13 and 14).

A ``Range`` header that is not understood, or asks for several ranges, is ignored: the whole file is a correct response.
"""

from __future__ import annotations

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
_RANGE = re.compile(r"bytes=[ \t]*(\d{0,18})-(\d{0,18})[ \t]*")


def parse_range(header: bytes, total: int) -> range | None:
    """The bytes of ``total`` that a ``Range`` header requests; an empty range if none of them is in the file.

    None means that the header must be ignored.

    >>> parse_range(b"bytes=2-4", 10), parse_range(b"bytes=-3", 10), parse_range(b"bytes=0-1,5-6", 10)
    (range(2, 5), range(7, 10), None)
    """
    matched = _RANGE.fullmatch(header.decode("latin-1").strip())
    if matched is None or not any(matched.groups()):
        return None
    first, last = matched.groups()
    if not first:
        return range(max(0, total - int(last)), total)
    if last and int(last) < int(first):
        return None
    return range(min(int(first), total), min(total, int(last) + 1 if last else total))


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
    """Status and headers of a response to a GET for a file, and which of its bytes are the body."""

    status: int
    headers: Headers
    part: range = range(0)


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
        part = parse_range(requested, file.size_bytes)
        if part is not None:
            if not part:
                unsatisfiable = (b"content-range", f"bytes */{file.size_bytes}".encode())
                headers = [unsatisfiable, (b"content-length", b"0"), *file.validators[public]]
                return ReadResponse(status=RANGE_NOT_SATISFIABLE, headers=headers)
            headers = [
                (b"content-type", file.content_type),
                (b"content-length", str(len(part)).encode()),
                (b"content-range", f"bytes {part.start}-{part.stop - 1}/{file.size_bytes}".encode()),
                *file.validators[public],
            ]
            return ReadResponse(status=PARTIAL_CONTENT, headers=headers, part=part)
    return ReadResponse(status=OK, headers=file.whole_headers[public], part=range(file.size_bytes))
