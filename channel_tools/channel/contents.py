# SPDX-License-Identifier: BSD-3-Clause
"""Judging what a package would write: every member inside its folder, and exactly what paths.json says of it."""

from __future__ import annotations

import hashlib
import os
import posixpath
from typing import IO, TYPE_CHECKING

from channel_tools.channel.refusal import damaged

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_CHUNK_BYTES = 1 << 18
_LINKS_DEEP = 40
_NAME_BYTES = 255
_PATH_TYPES = ("hardlink", "softlink", "directory")


class Tree:
    """The names that a package would write, so far; links are followed as a file system would."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self._links: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, member: tarfile.TarInfo) -> None:
        """Raise IntegrityError unless the member stays inside the folder it is unpacked in, and fits the others."""
        package, name = self._package, member.name
        if not _stays_inside(name) or ".." in name.split("/"):
            raise damaged(package, f"member {name!r} would be written outside the prefix")
        if len(name) > _NAME_BYTES // 4 and any(len(os.fsencode(part)) > _NAME_BYTES for part in name.split("/")):
            raise damaged(package, f"member {name[:80]!r}... has a name that is too long for file systems")
        normal = posixpath.normpath(name)
        if member.isdir():
            self._folders.add(normal)
            return
        if normal == "." or normal in self._files or normal in self._links:
            raise damaged(package, f"member {name!r} would be written over another one")
        self._folders.add(posixpath.dirname(normal))
        if member.issym():
            if not _stays_inside(posixpath.join(posixpath.dirname(name), member.linkname)):
                raise damaged(package, f"link {name!r} points outside the prefix, to {member.linkname!r}")
            self._links[normal] = member.linkname
        elif member.islnk():
            self._check_hard_link(member)
            self._files.add(normal)
        elif member.isreg():
            self._files.add(normal)
        else:
            raise damaged(package, f"member {name!r} is neither a file, a folder nor a link")

    def check(self) -> None:
        """Raise IntegrityError when a file is a folder too, or links lead out of the folder by way of each other."""
        if clashing := sorted(self._folders & self._files):
            raise damaged(self._package, f"{clashing[0]} in it is a file and a folder")
        if not self._links:
            return
        targets = (posixpath.join(posixpath.dirname(name), target) for name, target in self._links.items())
        for path in sorted({*self._folders, *targets}):
            if not self._leads_inside(path):
                raise damaged(self._package, f"links in it lead outside the prefix, by way of {path!r}")

    def _check_hard_link(self, member: tarfile.TarInfo) -> None:
        if not _stays_inside(member.linkname):
            message = f"hard link {member.name!r} points outside the prefix, to {member.linkname!r}"
            raise damaged(self._package, message)
        if posixpath.normpath(member.linkname) not in self._files:
            message = f"hard link {member.name!r} points to {member.linkname!r}, no file that comes before it"
            raise damaged(self._package, message)

    def _leads_inside(self, path: str) -> bool:
        """Whether ``path`` with all links followed is inside; a circle of links leads nowhere."""
        todo = path.split("/")[::-1]
        place: list[str] = []
        followed = 0
        while todo:
            part = todo.pop()
            if part in {"", "."}:
                continue
            if part == "..":
                if not place:
                    return False
                place.pop()
                continue
            place.append(part)
            target = self._links.get("/".join(place))
            if target is not None:
                followed += 1
                if followed > _LINKS_DEEP:
                    return True
                place.pop()
                todo += target.split("/")[::-1]
        return True


def check_contents(
    members: Iterable[tuple[tarfile.TarInfo, IO[bytes] | None]], paths: Mapping[str, object], package: Path
) -> None:
    """Raise IntegrityError unless the payload's ``members`` are exactly those that paths.json lists, as it says."""
    listed = _listed_paths(paths, package)
    seen: set[str] = set()
    tree = Tree(package)
    for member, stream in members:
        tree.add(member)
        if member.isdir() and member.name not in listed:
            continue
        if member.name in seen or member.name not in listed:
            how = "there twice" if member.name in seen else "not in paths.json"
            raise damaged(package, f"{member.name} in it is {how}")
        _check_member(member, stream, listed[member.name], package)
        seen.add(member.name)
    if missing := sorted(listed.keys() - seen):
        raise damaged(package, f"{missing[0]} is listed in paths.json but not in it")
    tree.check()


def _check_member(member: tarfile.TarInfo, stream: IO[bytes] | None, row: Mapping[str, object], package: Path) -> None:
    kind = "softlink" if member.issym() else "directory" if member.isdir() else "hardlink"
    if row.get("path_type", kind) != kind:
        raise damaged(package, f"{member.name} in it is a {kind}; paths.json says {row['path_type']}")
    if stream is None:
        return
    size, sha256 = row.get("size_in_bytes"), row.get("sha256")
    if size is not None and size != member.size:
        raise damaged(package, f"{member.name} in it has {member.size} bytes; paths.json says {size}")
    if sha256 is not None and sha256 != (found := _sha256(stream)):
        raise damaged(package, f"{member.name} in it has sha256 {found}; paths.json says {sha256}")


def _sha256(stream: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _listed_paths(paths: Mapping[str, object], package: Path) -> dict[str, Mapping[str, object]]:
    rows = paths.get("paths")
    if not isinstance(rows, list):
        raise damaged(package, "info/paths.json has no list of paths")
    listed: dict[str, Mapping[str, object]] = {}
    for row in rows:
        name = row.get("_path") if isinstance(row, dict) else None
        if not isinstance(name, str) or not _is_path_row(row):
            raise damaged(package, f"info/paths.json has the row {str(row)[:200]}")
        if name in listed:
            raise damaged(package, f"info/paths.json lists {name} twice")
        listed[name] = row
    return listed


def _is_path_row(row: Mapping[str, object]) -> bool:
    return (
        isinstance(row.get("size_in_bytes"), int | None)
        and isinstance(row.get("sha256"), str | None)
        and row.get("path_type", _PATH_TYPES[0]) in _PATH_TYPES
    )


def _stays_inside(name: str) -> bool:
    if not name or name.startswith("/") or "\0" in name:
        return False
    normal = posixpath.normpath(name)
    return normal != ".." and not normal.startswith("../")
