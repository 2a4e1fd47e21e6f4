# SPDX-License-Identifier: BSD-3-Clause
"""Finds files of an environment that name, or link to, paths that it must not depend on.

Every regular file is read in chunks and searched for the bytes of the forbidden paths; every symbolic link must end
inside the prefix. Some occurrences are allowed: the prefix itself (which may be below a forbidden path), and, only in
``conda-meta`` and what an image says of itself, the paths in records: the channel and the package cache that a package
came from, and its build prefix, which its files had until they were installed. Hard links need no check: they are files
of the prefix.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.byte_search import find_paths
from channel_tools.system.files import walk_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_RECORDS = ("conda-meta/", "share/channel_tools/image/")
"""Where an environment, and an image of one, say what they are made from."""
_PLACEHOLDER = re.compile(rb'"prefix_placeholder": *"([^"\\]+)"')


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class OutsidePath:
    """One occurrence: the file or link (relative to the prefix) and the forbidden path, or the target of the link."""

    file: str
    names: str
    is_link: bool


def find_outside_paths(
    prefix: Path, forbidden: Sequence[Path], *, recorded_sources: Sequence[Path] = ()
) -> tuple[OutsidePath, ...]:
    """Every occurrence of a ``forbidden`` path and every symbolic link out of ``prefix``, once per file and path.

    Sorted. ``recorded_sources`` are the channel folders and the package cache, which files below ``conda-meta`` may
    name. A path counts only if it ends at a path separator or at a byte that file names do not have, so ``/a/tree`` is
    not found in ``/a/tree2``. Raises ValueError for relative or root paths in ``forbidden``.
    """
    prefix = prefix.absolute()
    for path in forbidden:
        if not path.is_absolute() or path == Path(path.anchor):
            raise ValueError(f"{path}: expected an absolute path below the root")
    spellings = _spellings(forbidden)
    needles = tuple(
        spelling for spelling in spellings if not any(spelling.startswith(other + b"/") for other in spellings)
    )
    own = _spellings([prefix])
    recorded = own + _spellings(recorded_sources)
    findings: list[OutsidePath] = []
    for entry in walk_entries(prefix):
        name = entry.path[len(str(prefix)) + 1 :]
        if entry.is_symlink():
            findings += _link_findings(Path(entry.path), name, prefix)
        elif entry.is_file():
            is_record = name.startswith(_RECORDS)
            # CEP 34's ``prefix_placeholder``: what was replaced in the package's files
            allowed = (*recorded, *_PLACEHOLDER.findall(Path(entry.path).read_bytes())) if is_record else own
            hits = _mentions(Path(entry.path), needles, allowed)
            findings += (OutsidePath(file=name, names=hit, is_link=False) for hit in hits)
    return tuple(sorted(findings))


def _spellings(paths: Sequence[Path]) -> tuple[bytes, ...]:
    """Each path as written and with its links resolved, as bytes."""
    return tuple(sorted({os.fsencode(path) for named in paths for path in (named.absolute(), named.resolve())}))


def _link_findings(path: Path, name: str, prefix: Path) -> list[OutsidePath]:
    target = path.parent / path.readlink()
    ends = (Path(os.path.normpath(target)), Path(os.path.realpath(path)))
    if ends[0].is_relative_to(prefix) and ends[1].is_relative_to(prefix.resolve()):
        return []
    outside = ends[0] if not ends[0].is_relative_to(prefix) else ends[1]
    return [OutsidePath(file=name, names=str(outside), is_link=True)]


def _mentions(path: Path, needles: Sequence[bytes], allowed: Sequence[bytes]) -> Iterator[str]:
    """The needles that ``path`` contains outside allowed paths."""
    with path.open("rb") as stream:
        for mention in find_paths(stream, needles, allowed=allowed):
            yield os.fsdecode(mention.text)
