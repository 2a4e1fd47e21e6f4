# SPDX-License-Identifier: BSD-3-Clause
"""Finds what in an environment names or links to places that it must not depend on.

Every regular file is read in chunks and searched for the bytes of the forbidden paths; every symbolic link must end
inside the prefix. Three kinds of mention are right and left out: the prefix itself (which may lie below a forbidden
path), and, in ``conda-meta`` only, the channel and the package cache that a package came from, which the records name
by conda's own rules. Hard links need no look: they are files of the prefix.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from channel_tools.environments.walk import walk_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHUNK_BYTES = 8 << 20
_NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.~")
_META = "conda-meta"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class ForeignPath:
    """One mention: the file or link (relative to the prefix) and the forbidden path, or where the link ends."""

    file: str
    names: str
    is_link: bool


def find_foreign_paths(
    prefix: Path, forbidden: Sequence[Path], *, recorded_sources: Sequence[Path] = ()
) -> tuple[ForeignPath, ...]:
    """Every mention of a ``forbidden`` path and every symbolic link out of ``prefix``, sorted, once per file and path.

    ``recorded_sources`` are the channel folders and the package cache, which files below ``conda-meta`` may name. A
    path counts where it ends at a path separator or at a byte that no file name has, so ``/a/tree`` is not found in
    ``/a/tree2``. Relative or root paths in ``forbidden`` raise ValueError.
    """
    prefix = prefix.absolute()
    needles = _needles(forbidden)
    own = _spellings([prefix])
    recorded = own + _spellings(recorded_sources)
    findings: list[ForeignPath] = []
    for entry in walk_entries(prefix):
        name = entry.path[len(str(prefix)) + 1 :]
        if entry.is_symlink():
            findings += _link_findings(Path(entry.path), name, prefix)
        elif entry.is_file():
            allowed = recorded if name.startswith(_META + "/") else own
            hits = _mentions(Path(entry.path), needles, allowed)
            findings += (ForeignPath(file=name, names=hit, is_link=False) for hit in hits)
    return tuple(sorted(findings))


def _needles(forbidden: Sequence[Path]) -> tuple[bytes, ...]:
    for path in forbidden:
        if not path.is_absolute() or path == Path(path.anchor):
            raise ValueError(f"{path}: expected an absolute path below the root")
    spellings = _spellings(forbidden)
    return tuple(one for one in spellings if not any(one.startswith(other + b"/") for other in spellings))


def _spellings(paths: Sequence[Path]) -> tuple[bytes, ...]:
    """Each path as written and with its links resolved, as bytes."""
    return tuple(sorted({os.fsencode(path) for given in paths for path in (given.absolute(), given.resolve())}))


def _link_findings(path: Path, name: str, prefix: Path) -> list[ForeignPath]:
    target = path.parent / path.readlink()
    ends = (Path(os.path.normpath(target)), Path(os.path.realpath(path)))
    if ends[0].is_relative_to(prefix) and ends[1].is_relative_to(prefix.resolve()):
        return []
    outside = ends[0] if not ends[0].is_relative_to(prefix) else ends[1]
    return [ForeignPath(file=name, names=str(outside), is_link=True)]


def _mentions(path: Path, needles: tuple[bytes, ...], allowed: tuple[bytes, ...]) -> Iterator[str]:
    """The needles that ``path`` holds outside of an allowed path."""
    left = set(needles)
    margin = max((len(one) for one in (*needles, *allowed)), default=0) + 1
    with path.open("rb") as stream:
        for window in _windows(stream, margin):
            for needle in sorted(left):
                if _is_mentioned(window, needle, allowed):
                    left.remove(needle)
                    yield os.fsdecode(needle)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Window:
    """A part of a file; matches that begin in ``[first, last)`` have all bytes around them that decide on them."""

    content: bytes
    first: int
    last: int


def _windows(stream: BinaryIO, margin: int) -> Iterator[_Window]:
    content, first = b"", 0
    chunk = stream.read(_CHUNK_BYTES)
    while chunk:
        following = stream.read(_CHUNK_BYTES)
        content += chunk
        last = max(first, len(content) - margin) if following else len(content)
        yield _Window(content=content, first=first, last=last)
        dropped = max(0, last - margin)
        content, first = content[dropped:], last - dropped
        chunk = following


def _is_mentioned(window: _Window, needle: bytes, allowed: tuple[bytes, ...]) -> bool:
    position = window.content.find(needle, window.first)
    while position != -1 and position < window.last:
        ends = _ends_at(window.content, position + len(needle))
        if ends and not any(_stands_around(window.content, position, needle, path) for path in allowed):
            return True
        position = window.content.find(needle, position + 1)
    return False


def _stands_around(content: bytes, position: int, needle: bytes, path: bytes) -> bool:
    """Whether the needle at ``position`` is a part of ``path`` written there in full."""
    offset = path.find(needle)
    while offset != -1:
        start = position - offset
        if start >= 0 and content.startswith(path, start) and _ends_at(content, start + len(path)):
            return True
        offset = path.find(needle, offset + 1)
    return False


def _ends_at(content: bytes, end: int) -> bool:
    return end == len(content) or content[end] not in _NAME_BYTES
