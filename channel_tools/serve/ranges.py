# SPDX-License-Identifier: BSD-3-Clause
"""Which bytes of a file a request asks for (RFC 9110, section 14), and whether it has them already (section 13). Pure.

A header that is not understood, or asks for too much at once (many ranges, ranges that overlap), counts as absent: the
whole file is a right answer to it.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

RANGES_LIMIT = 16
_HEADER_LIMIT = 512
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
        return if_none_match.strip() == b"*" or etag in _tags(if_none_match)
    return if_modified_since is not None and if_modified_since.strip() == modified


def range_applies(etag: bytes, modified: bytes, if_range: bytes | None) -> bool:
    """Whether the ``Range`` of a request holds for this state of the file; weak tags never do."""
    return if_range is None or if_range.strip() in {etag, modified}


def _tags(header: bytes) -> set[bytes]:
    return {tag.strip().removeprefix(b"W/") for tag in header.split(b",")}
