# SPDX-License-Identifier: BSD-3-Clause
"""Checks the content of a package: that its members are safe to unpack and match paths.json, and its metadata.

Problems with members are passed to a callback, which raises at the first (a channel) or collects them all (an audit).
This module also defines how large the files of ``info/`` (CEP 34) may be, where they are kept, and how JSON is parsed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, Self, cast

import msgspec

from channel_tools.system.archives import MemberPaths, UnsafeMemberError
from channel_tools.system.document import decode_json
from channel_tools.system.errors import IntegrityError
from channel_tools.system.harmless import CONTROLS

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from channel_tools.system.files import HashedStream

_ROWS = 1_000_000
_CONTROLS = re.compile(rf"[\t\n{CONTROLS}]")
"""Characters that end a line, move a cursor or change the direction of text."""
_WRITTEN_BY_CLIENTS = re.compile(r"(?:\./)*(?:info|conda-meta/(?:history|[^/]*\.json))(?:/.*)?", re.DOTALL)
"""Where clients store a package's metadata and their records: no payload may have these paths."""


class PathRow(msgspec.Struct, frozen=True, gc=False):
    """A row of paths.json (CEP 34): the fields that are compared with the payload or used by the audit."""

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

    ``unsafe`` members must not be unpacked; ``mismatch`` members do not match paths.json.
    """

    kind: Literal["unsafe", "mismatch"]
    file: str
    text: str

    def __str__(self) -> str:
        return self.text if self.kind == "unsafe" else f"{self.file} {self.text}"


def damaged_package(path: Path, reason: str) -> IntegrityError:
    """The error for a package that must not be used."""
    hint = (
        f"copy {path.name} again from where it comes from, or make it again (build, foundation build); "
        "if it is the same there, whoever makes it has to correct it"
    )
    return IntegrityError(f"{path}: {reason}", hint=hint)


class SafePaths:
    """The paths that a part of a package would write; ``payload`` if it is the part that is installed."""

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
        """Report problems of all members together."""
        try:
            self._members.check_all()
        except UnsafeMemberError as err:
            self._on_problem(PackageProblem(kind="unsafe", file="", text=str(err)))


class PathsJson:
    """The rows of paths.json, to compare with the payload.

    A row may lack a size or a hash, as in older packages (CEP 34), unless ``complete``.
    """

    def __init__(
        self, rows: Mapping[str, PathRow], on_problem: Callable[[PackageProblem], None], *, complete: bool = False
    ) -> None:
        self._rows = rows
        self._complete = complete
        self._listed: set[str] = set()
        self._on_problem = on_problem

    def add(self, member: tarfile.TarInfo, stream: HashedStream | None) -> None:
        """Report a member that does not match its row, or that has none; folders need none."""
        name = member.name
        if member.isdir() and name not in self._rows:
            return
        if name in self._listed:
            self._report(name, "is in the package twice")
        elif name not in self._rows:
            self._report(name, "is in the package but not listed in paths.json")
        elif problem := _difference(self._rows[name], member, stream, complete=self._complete):
            self._report(name, problem)
        self._listed.add(name)

    def check_all(self) -> None:
        """Report the rows without a member."""
        for name in sorted(self._rows.keys() - self._listed):
            self._report(name, "is listed in paths.json but not in the package")

    def _report(self, name: str, text: str) -> None:
        self._on_problem(PackageProblem(kind="mismatch", file=name, text=text))


def _check_names(member: tarfile.TarInfo, *, payload: bool) -> None:
    """Raise UnsafeMemberError for names that packages may not have, though a file system would accept them."""
    if not _is_plain(member.name):
        _check_text(member.name, f"member {member.name!r}")
    if not _is_plain(member.linkname):
        _check_text(member.linkname, f"the target {member.linkname!r} of member {member.name!r}")
    if payload and _WRITTEN_BY_CLIENTS.fullmatch(member.name) and not member.isdir():
        raise UnsafeMemberError(f"member {member.name!r} would replace a file that clients write")


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _check_text(text: str, subject: str) -> None:
    """Raise UnsafeMemberError for a name that terminals, logs and JSON cannot show unchanged."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnsafeMemberError(f"{subject} is not UTF-8") from None
    if _CONTROLS.search(text):
        raise UnsafeMemberError(f"{subject} has a control character")


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
    if row.sha256 is not None and row.sha256 != (sha256 := stream.hexdigest()):
        return f"has the sha256 {sha256}, paths.json says {row.sha256}"
    return ""


def read_path_rows(content: bytes, package: Path) -> dict[str, PathRow]:
    """The rows of a paths.json by path. Raises IntegrityError if they are malformed or list a path twice."""
    try:
        rows = decode_json(content, _PathsFile).paths
    except ValueError as err:
        raise damaged_package(package, f"info/paths.json is not a valid list of paths: {err}") from None
    by_path: dict[str, PathRow] = {}
    for row in rows:
        if row.path in by_path:
            raise damaged_package(package, f"info/paths.json lists {row.path} twice")
        if row.prefix_placeholder == "":
            raise damaged_package(package, f"info/paths.json has an empty prefix_placeholder for {row.path}")
        by_path[row.path] = row
    return by_path


def rows_of_files(content: bytes, package: Path) -> dict[str, PathRow]:
    """The rows for info/files, which packages had before paths.json (2017): paths alone. Raises IntegrityError."""
    try:
        names = content.decode().splitlines()
    except UnicodeDecodeError:
        raise damaged_package(package, "info/files is not UTF-8") from None
    return {name: PathRow(path=name) for name in names if name}


JsonObject = dict[str, object]

_MEMORY_BYTES = 32 << 20
METADATA_BYTES: Mapping[str, int] = {
    "paths.json": 64 << 20,  # 300 bytes a row: 200,000 files, twice what the largest packages of conda-forge have
    "index.json": 1 << 20,
    "files": 64 << 20,  # read from packages that have no paths.json
    **dict.fromkeys(("about.json", "hash_input.json", "link.json", "run_exports.json"), 4 << 20),
}
"""The files of info/ that are read from every package, and how large they may be: JSON needs 20 times its size in
memory, and a job of the server has to stay below its limit."""
_DEPTH = 100
"""How deeply JSON in info/ may be nested: clients written in Rust stop at 128."""
OTHER_METADATA_BYTES = 64 << 20
"""Larger files of info/ are not passed to visitors."""


class InfoFiles(Mapping[str, bytes]):
    """Files of info/ by their names without ``info/``: those that every reader needs, or ``all_files``.

    The others are kept on disk if they are large in total, until the ``with`` block ends.
    """

    def __init__(self, *, all_files: bool) -> None:
        self._all_files = all_files
        self._contents: dict[str, bytes] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._others: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._others is not None:
            self._others.close()

    def add(self, name: str, size_bytes: int, stream: IO[bytes] | None) -> bool:
        """Keep a member that is needed; False if it is not a plain file, too large or a duplicate."""
        if (limit := METADATA_BYTES.get(name)) is not None:
            if stream is None or size_bytes > limit or name in self._contents:
                return False
            self._contents[name] = stream.read()
        elif self._all_files and stream is not None and size_bytes <= OTHER_METADATA_BYTES:
            if self._others is None:
                self._others = cast("IO[bytes]", tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES))  # noqa: SIM115 - closed by __exit__
            content = stream.read()
            self._places[name] = self._others.seek(0, os.SEEK_END), len(content)
            self._others.write(content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Have one of the files that every reader needs be this from now on."""
        self._contents[name] = content

    def __getitem__(self, name: str) -> bytes:
        if name in self._contents:
            return self._contents[name]
        offset, size_bytes = self._places[name]
        others = cast("IO[bytes]", self._others)
        others.seek(offset)
        return others.read(size_bytes)

    def __iter__(self) -> Iterator[str]:
        yield from self._contents
        yield from self._places

    def __len__(self) -> int:
        return len(self._contents) + len(self._places)


def info_object(info: Mapping[str, bytes], name: str, path: Path) -> dict[str, Any]:
    """The JSON object in one of the files of info/. Raises IntegrityError if it is missing or not an object."""
    value = parsed_json(info, name, path)
    if not isinstance(value, dict):
        raise damaged_package(path, f"info/{name} is not a JSON object")
    return value


def optional_object(info: Mapping[str, bytes], name: str, path: Path) -> JsonObject | None:
    """As ``info_object``, but None if the package does not have the file."""
    return info_object(info, name, path) if name in info else None


def content_of(info: Mapping[str, bytes], name: str, path: Path) -> bytes:
    """The bytes of info/``name``; ``path`` is the package. Raises IntegrityError if it is missing."""
    if name not in info:
        raise damaged_package(path, f"it has no info/{name}")
    return info[name]


def parsed_json(info: Mapping[str, bytes], name: str, path: Path) -> object:
    """The JSON in info/``name``. Raises IntegrityError if it is missing, damaged or nested too deeply."""
    try:
        value = decode_json(content := content_of(info, name, path))
    except ValueError as err:
        raise damaged_package(path, f"info/{name} is not valid JSON ({err})") from None
    if content.count(b"[") + content.count(b"{") > _DEPTH and _is_too_deep(value):
        raise damaged_package(path, f"info/{name} is nested more than {_DEPTH} levels deep")
    return value


def _is_too_deep(value: object) -> bool:
    """Whether lists and objects in a value are nested deeper than _DEPTH; level by level, since it may be deep."""
    level = [value]
    for _ in range(_DEPTH + 1):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
