# SPDX-License-Identifier: BSD-3-Clause
"""Judging the members of a package: each is safe to unpack, and exactly what paths.json says of it.

Problems are handed to a callback, which raises at the first (a channel) or collects them all (an audit).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Literal

import msgspec

from channel_tools.system.archives import MemberPaths, UnsafeMemberError
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Mapping
    from pathlib import Path

_CHUNK_BYTES = 1 << 18
_ROWS = 1_000_000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What ends a line, moves a cursor or turns the direction of writing."""
_WRITTEN_BY_CLIENTS = re.compile(r"(?:\./)*(?:info|conda-meta/(?:history|[^/]*\.json))(?:/.*)?", re.DOTALL)
"""Where clients keep a package's metadata, and write what is installed: no payload may bring these."""


class PathRow(msgspec.Struct, frozen=True, gc=False):
    """A row of paths.json (CEP 34): the fields that are compared with the payload, or used by the audit."""

    path: str = msgspec.field(name="_path")
    path_type: Literal["hardlink", "softlink", "directory"] | None = None
    size_in_bytes: int | None = None
    sha256: str | None = None
    prefix_placeholder: str | None = None
    file_mode: str | None = None


class _PathsFile(msgspec.Struct):
    paths: Annotated[list[PathRow], msgspec.Meta(max_length=_ROWS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageProblem:
    """What is wrong with one member of a package that can be read.

    ``unsafe`` members must not be unpacked; those of ``mismatch`` are not what paths.json says.
    """

    kind: Literal["unsafe", "mismatch"]
    file: str
    text: str

    def __str__(self) -> str:
        return self.text if self.kind == "unsafe" else f"{self.file} {self.text}"


def damaged_package(path: Path, what: str) -> IntegrityError:
    """The error for a package that must not be used."""
    hint = f"delete {path.name} and make it again (build, foundation build) or copy it again from where it is complete"
    return IntegrityError(f"{path}: {what}", hint=hint)


class HashedStream:
    """A member's bytes with their hash."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        chunk = self._source.read(size)
        self._digest.update(chunk)
        return chunk

    def sha256(self) -> str:
        """The hash of all bytes; those that nobody has read yet are read now."""
        while self.read(_CHUNK_BYTES):
            pass
        return self._digest.hexdigest()


class SafePaths:
    """The paths that a part of a package would write; ``payload`` when it is the one that is installed."""

    def __init__(self, on_problem: Callable[[PackageProblem], None], *, payload: bool = False) -> None:
        self._members = MemberPaths()
        self._on_problem = on_problem
        self._payload = payload

    def add(self, member: tarfile.TarInfo) -> None:
        """Report a member that must not be unpacked."""
        try:
            _check_names(member, payload=self._payload)
            self._members.add(member)
        except UnsafeMemberError as err:
            self._on_problem(PackageProblem(kind="unsafe", file=member.name, text=str(err)))

    def check_all(self) -> None:
        """Report what is unsafe about all members together."""
        try:
            self._members.check_all()
        except UnsafeMemberError as err:
            self._on_problem(PackageProblem(kind="unsafe", file="", text=str(err)))


class PathsJson:
    """What paths.json says of the payload.

    A row may lack a size or a hash (CEP 34: older packages do), unless ``complete``.
    """

    def __init__(
        self, rows: Mapping[str, PathRow], on_problem: Callable[[PackageProblem], None], *, complete: bool = False
    ) -> None:
        self._rows = rows
        self._complete = complete
        self._seen: set[str] = set()
        self._on_problem = on_problem

    def add(self, member: tarfile.TarInfo, stream: HashedStream | None) -> None:
        """Report a member that is not what its row says, or that has none; folders need none."""
        name = member.name
        if member.isdir() and name not in self._rows:
            return
        if name in self._seen:
            self._report(name, "is in the package twice")
        elif name not in self._rows:
            self._report(name, "is in the package but not listed in paths.json")
        elif problem := _difference(self._rows[name], member, stream, complete=self._complete):
            self._report(name, problem)
        self._seen.add(name)

    def check_all(self) -> None:
        """Report the rows without a member."""
        for name in sorted(self._rows.keys() - self._seen):
            self._report(name, "is listed in paths.json but not in the package")

    def _report(self, name: str, text: str) -> None:
        self._on_problem(PackageProblem(kind="mismatch", file=name, text=text))


def _check_names(member: tarfile.TarInfo, *, payload: bool) -> None:
    """Raise UnsafeMemberError for names that packages may not have, though a file system would take them."""
    _check_text(member.name, f"member {member.name!r}")
    _check_text(member.linkname, f"the target {member.linkname!r} of member {member.name!r}")
    if payload and _WRITTEN_BY_CLIENTS.fullmatch(member.name) and not member.isdir():
        raise UnsafeMemberError(f"member {member.name!r} would stand in the place of what clients write")


def _check_text(text: str, shown: str) -> None:
    """Raise UnsafeMemberError for a name that terminals, logs and JSON cannot show as it is."""
    if text.isascii() and text.isprintable():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsafeMemberError(f"{shown} is not UTF-8") from None
    if _CONTROLS.search(text):
        raise UnsafeMemberError(f"{shown} has a control character")


def _difference(row: PathRow, member: tarfile.TarInfo, stream: HashedStream | None, *, complete: bool) -> str:
    kind = "softlink" if member.issym() else "directory" if member.isdir() else "hardlink"
    if row.path_type not in {None, kind}:
        return f"is a {kind}, paths.json says {row.path_type}"
    if stream is None:
        return ""
    if complete and (row.size_in_bytes is None or row.sha256 is None):
        return "has no size or no sha256 in paths.json"
    if row.size_in_bytes is not None and row.size_in_bytes != member.size:
        return f"has {member.size} bytes, paths.json says {row.size_in_bytes}"
    if row.sha256 is not None and row.sha256 != (found := stream.sha256()):
        return f"has the sha256 {found}, paths.json says {row.sha256}"
    return ""


def read_path_rows(content: bytes, package: Path) -> dict[str, PathRow]:
    """The rows of a paths.json by path. Raises IntegrityError when they are malformed or name a path twice."""
    try:
        rows = decode_json(content, _PathsFile).paths
    except ValueError as err:
        raise damaged_package(package, f"info/paths.json is not a list of paths as the format has it: {err}") from None
    found: dict[str, PathRow] = {}
    for row in rows:
        if row.path in found:
            raise damaged_package(package, f"info/paths.json lists {row.path} twice")
        found[row.path] = row
    return found
