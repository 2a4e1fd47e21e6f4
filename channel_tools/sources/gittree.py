# SPDX-License-Identifier: BSD-3-Clause
"""Git's tree objects: their entries, and the rules by which git makes files of them.

``git checkout`` and ``git fsck`` refuse a tree with entries that would be written elsewhere, or that git would take for
its own (verify_path in read-cache.c, fsck_tree in fsck.c). Who reads objects without a checkout has to do the same, by
the rules of all systems: what is made of a tree here may be checked out again on another one. Names that differ only in
case are two files to git, and one on some systems: clash_in finds them.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PATH_BYTES = 4096
"""The longest path of an entry (git's core.maxTreeDepth is half of that, with one letter a folder)."""
ENTRIES = 2_000_000
"""The most entries of a commit: ten times those of the largest public repositories.

A few small trees that name each other can have more entries than any machine has memory.
"""
_IGNORED_BY_HFS = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
_AFTER_NAME = re.compile(r"(?<=.)(?:[. ]+|:.*)+$", re.DOTALL)
"""What NTFS leaves out at the end of a name: dots and blanks, and the name of a stream."""
_OWN = frozenset({".git", "git~1"})
_MODULES = frozenset({".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4", "gi7eba~1"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeEntry:
    """A file, link or submodule of a commit: its path, its mode in octal and its object's name."""

    path: str
    mode: str
    object: str

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, by the modes of today or by one of git's first ones (100664)."""
        return stat.S_ISREG(int(self.mode, 8))

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(int(self.mode, 8))

    @property
    def is_folder(self) -> bool:
        """Whether it is another tree."""
        return stat.S_ISDIR(int(self.mode, 8))

    @property
    def is_program(self) -> bool:
        """Whether it is a file that its owner may run."""
        return self.is_file and int(self.mode, 8) & stat.S_IXUSR != 0


def read_tree(content: bytes, *, hash_bytes: int) -> Iterator[TreeEntry]:
    """The entries of a tree object, as they stand in it. Raises ValueError for bytes that are none."""
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, blank, name = content[at:end].partition(b" ")
        below = content[end + 1 : end + 1 + hash_bytes]
        if end < 0 or not blank or not re.fullmatch(rb"[0-7]{5,6}", mode) or len(below) != hash_bytes:
            raise ValueError
        yield TreeEntry(path=os.fsdecode(name), mode=mode.decode(), object=below.hex())
        at = end + 1 + hash_bytes


def fault_of(entry: TreeEntry) -> str | None:
    """Why git makes no file of an entry of this name in its tree (``path`` is the name alone), None if it does."""
    name = entry.path
    if not name:
        return "has no name"
    if name in {".", ".."}:
        return f"has the name {name!r}, which leads out of its folder"
    if "/" in name:
        return "has a slash in its name"
    spellings = {_folded(part) for part in name.split("\\")}
    if spellings & _OWN:
        return "has a name that some systems take for '.git', git's own folder"
    if entry.is_link and spellings & _MODULES:
        return "is a link with the name of the file '.gitmodules'"
    return None


def _folded(name: str) -> str:
    """A name as the file systems of Windows and macOS compare it with git's own names, which are ASCII."""
    return _AFTER_NAME.sub("", _IGNORED_BY_HFS.sub("", name)).lower()


def clash_in(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths that are one on a file system that does not tell case, None if there are none."""
    seen: dict[str, str] = {}
    for path in sorted(paths):
        for end in [index for index, letter in enumerate(path) if letter == "/"] + [len(path)]:
            part = path[:end]
            if (other := seen.setdefault(part.casefold(), part)) != part:
                return other, part
    return None
