# SPDX-License-Identifier: BSD-3-Clause
"""Finds byte strings in files of any size, which are read in chunks; matches across chunk borders are found.

A path matches only if it ends at a path separator or at a byte that cannot be in a file name, so ``/a/tree`` is not
found in ``/a/tree2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    _Ends = Callable[[bytes, int], bool]

CHUNK_BYTES = 1 << 20
"""Small enough for a processor's caches: 8 MiB take up to twice the processor time."""
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.~")
_NAME_CHARACTERS = frozenset(map(chr, _NAME_BYTES))
_WIDEST = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The first occurrence of a string in a file."""

    text: bytes
    offset: int


WIDE_ENCODINGS = ("utf-16-le", "utf-32-le")
"""Encodings in which programs have strings of wide characters: wchar_t, Java's, Qt's.

A string of ASCII in the big-endian forms has that of the little-endian ones in it, some bytes later.
"""


def find_paths(
    stream: BinaryIO,
    needles: Sequence[bytes],
    *,
    allowed: Sequence[bytes] = (),
    chunk_bytes: int = CHUNK_BYTES,
    encoding: str = "latin-1",
) -> Iterator[Match]:
    """The first occurrence of each path of ``needles``, except within a complete ``allowed`` path.

    All are in the ``encoding``: in another than the default, a character has several bytes.
    """
    width = len("/".encode(encoding))

    def ends(content: bytes, end: int) -> bool:
        return content[end : end + width].decode(encoding, "replace") not in _NAME_CHARACTERS

    return _find(stream, needles, allowed, _ends_at if width == 1 else ends, chunk_bytes)


def find_texts(
    stream: BinaryIO, needles: Sequence[bytes], *, allowed: Sequence[bytes] = (), chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Match]:
    """Like find_paths, for strings that may end anywhere, including inside a name."""
    return _find(stream, needles, allowed, lambda _content, _end: True, chunk_bytes)


def _find(
    stream: BinaryIO, needles: Sequence[bytes], allowed: Sequence[bytes], ends: _Ends, chunk_bytes: int
) -> Iterator[Match]:
    unseen = set(needles)
    margin = max(map(len, (*needles, *allowed)), default=0) + _WIDEST
    for window in _windows(stream, margin, chunk_bytes):
        for needle in sorted(unseen):
            position = _first_in(window, needle, allowed, ends)
            if position is not None:
                unseen.remove(needle)
                yield Match(text=needle, offset=window.start + position)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Window:
    """A part of a file, with enough context to decide about all matches that start in ``[first, last)``."""

    content: bytes
    start: int
    """The position of the part in the file."""
    first: int
    last: int


def _windows(stream: BinaryIO, margin: int, chunk_bytes: int) -> Iterator[_Window]:
    content, start, first = b"", 0, 0
    chunk = stream.read(chunk_bytes)
    while chunk:
        following = stream.read(chunk_bytes)
        content += chunk
        last = max(first, len(content) - margin) if following else len(content)
        yield _Window(content=content, start=start, first=first, last=last)
        dropped = max(0, last - margin)
        content, start, first = content[dropped:], start + dropped, last - dropped
        chunk = following


def _first_in(window: _Window, needle: bytes, allowed: Sequence[bytes], ends: _Ends) -> int | None:
    position = window.content.find(needle, window.first)
    while position != -1 and position < window.last:
        if ends(window.content, position + len(needle)) and not any(
            _stands_around(window.content, position, needle, text, ends) for text in allowed
        ):
            return position
        position = window.content.find(needle, position + 1)
    return None


def _stands_around(content: bytes, position: int, needle: bytes, text: bytes, ends: _Ends) -> bool:
    """Whether the needle at ``position`` is part of a complete occurrence of ``text``."""
    offset = text.find(needle)
    while offset != -1:
        start = position - offset
        if start >= 0 and content.startswith(text, start) and ends(content, start + len(text)):
            return True
        offset = text.find(needle, offset + 1)
    return False


def _ends_at(content: bytes, end: int) -> bool:
    return end == len(content) or content[end] not in _NAME_BYTES
