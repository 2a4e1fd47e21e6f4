# SPDX-License-Identifier: BSD-3-Clause
"""Reads the members of a package's two parts and checks them, whether they are packed or unpacked.

A member is a header and a stream of its bytes (None for what has none), which must be read before the next one.
"""

from __future__ import annotations

import tarfile
from typing import IO, TYPE_CHECKING, Protocol, cast

import msgspec

from channel_tools.conda.contents import (
    InfoFiles,
    PackageProblem,
    PathRow,
    PathsJson,
    SafePaths,
    content_of,
    damaged_package,
    info_object,
    optional_object,
    read_path_rows,
    rows_of_files,
)
from channel_tools.conda.metadata import Correction, check_about, check_link, check_run_exports, checked_index
from channel_tools.conda.package import OLD_SUFFIX
from channel_tools.system.hashing import HashedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Member = tuple[tarfile.TarInfo, IO[bytes] | None]


class PackageVisitor(Protocol):
    """Receives the content of a package while it is read: first its metadata, then each member of the payload."""

    def visit_info(self, files: Mapping[str, bytes]) -> None:
        """Receive the files of info/ by their names without ``info/``; they can be read until this returns."""

    def visit_member(self, member: tarfile.TarInfo, stream: IO[bytes] | None) -> None:
        """Receive a file or link; the stream (None for links) can be read until this returns."""


def read_info(
    members: Iterator[Member], path: Path, info: InfoFiles, on_problem: Callable[[PackageProblem], None]
) -> None:
    """Read the metadata into ``info``. Raises IntegrityError for a member that is not a file of info/."""
    paths = SafePaths(on_problem)
    for member, stream in members:
        paths.add(member)
        folder, _slash, name = member.name.partition("/")
        if folder != "info" or not info.add(name, member.size, stream):
            message = f"{member.name[:200]!r} in its metadata is not a plain file below info/, too large or a duplicate"
            raise damaged_package(path, message)
    paths.check_all()


def read_payload(
    members: Iterator[Member],
    listed: PathsJson | None,
    visitor: PackageVisitor | None,
    on_problem: Callable[[PackageProblem], None],
) -> None:
    """Read the payload and compare it with ``listed`` (paths.json), if given, by hashing all of it."""
    paths = SafePaths(on_problem, payload=True)
    for member, stream in members:
        hashed = None if stream is None or listed is None else HashedStream(stream)
        paths.add(member)
        if visitor is not None and not member.isdir():
            visitor.visit_member(member, cast("IO[bytes] | None", hashed) or stream)
        if listed is not None:
            listed.add(member, hashed)
    if listed is not None:
        listed.check_all()
    paths.check_all()


def path_rows(info: Mapping[str, bytes], path: Path) -> Mapping[str, PathRow]:
    """The rows of paths.json; of info/files in older packages without it. Raises IntegrityError."""
    if path.name.endswith(OLD_SUFFIX) and "paths.json" not in info and "files" in info:
        return rows_of_files(info["files"], path)
    return read_path_rows(content_of(info, "paths.json", path), path)


def check_metadata(info: InfoFiles, path: Path, correction: Correction | None = None) -> None:
    """Raise IntegrityError for metadata that a channel's index cannot contain, with the reason.

    An index.json that only its channel's ``correction`` makes right is replaced in ``info`` by the corrected one.
    """
    index = info_object(info, "index.json", path)
    if (corrected := checked_index(index, path, correction)) is not index:
        info.replace("index.json", msgspec.json.encode(corrected))
    check_about(optional_object(info, "about.json", path) or {}, path)
    check_run_exports(optional_object(info, "run_exports.json", path) or {}, path)
    check_link(optional_object(info, "link.json", path) or {}, path)
