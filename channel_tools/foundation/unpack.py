# SPDX-License-Identifier: BSD-3-Clause
"""Unpacking .debs and packages into a folder, member by member as a stream.

Nothing of what an archive says is believed: a member path or a link that leads out of the folder, a member below a
link, a device, and an archive cut short each end in an IntegrityError that names the file.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
import shutil
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from channel_tools.conda.archive import stream_component
from channel_tools.system.archives import (
    AR_MAGIC,
    TAR_FAULTS,
    UnsafeMemberError,
    ar_members,
    check_link,
    check_member_path,
    members_of_tar,
)
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.system.archives import ArMember

_CHUNK_BYTES = 1 << 20
_FILE_MODE, _PROGRAM_MODE = 0o644, 0o755
_DATA_SUFFIXES = frozenset({".xz", ".gz", ".zst", ".tar"})


class Source(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""


class TreeWriter:
    """Writes members below a folder, never outside of it and never through a link."""

    def __init__(self, root: Path, archive: Path, *, skip: Sequence[str] = ()) -> None:
        self._root = root
        self._archive = archive
        self._skip = re.compile("|".join(fnmatch.translate(glob) for glob in skip)) if skip else None
        self._folders: set[Path] = set()

    def is_skipped(self, name: str) -> bool:
        """Whether the row says that this member is never unpacked."""
        return self._skip is not None and self._skip.match(name) is not None

    def check_name(self, name: str) -> None:
        """Raise IntegrityError when a member's own path leads out of the folder."""
        try:
            check_member_path(name)
        except UnsafeMemberError as err:
            raise self.damaged(str(err)) from None

    def write_file(self, name: str, source: Source, *, executable: bool) -> Path:
        """A regular file with the bytes of ``source``, over whatever an earlier archive put there."""
        path = self._path_of(name)
        with path.open("wb") as stream:
            shutil.copyfileobj(source, stream, _CHUNK_BYTES)
        path.chmod(_PROGRAM_MODE if executable else _FILE_MODE)
        return path

    def write_link(self, name: str, target: str, *, may_lead_out: bool = False) -> None:
        """A symbolic link. Absolute targets stay as they are for a repair step to change; packing refuses them."""
        path = self._path_of(name)
        if not target.startswith("/") and not may_lead_out:
            try:
                check_link(name, target)
            except UnsafeMemberError as err:
                raise self.damaged(str(err)) from None
        path.symlink_to(target)

    def write_hard_link(self, name: str, target: str) -> None:
        """A second name of a file that this archive wrote before; a copy, so that later edits stay apart."""
        self.check_name(target)
        source = self._root / target
        if source.is_symlink() or not source.is_file():
            raise self.damaged(f"the hard link {name} leads to {target}, which is not a file written before it")
        path = self._path_of(name)
        shutil.copy(source, path)

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it; IntegrityError when one of them is a link or a file."""
        self.check_name(name)
        self._ensure_folder(self._root / name)

    def damaged(self, damage: str) -> IntegrityError:
        """The error for anything wrong with the archive."""
        return IntegrityError(f"{self._archive}: {damage}", hint="remove the file there; the next run fetches it again")

    def _path_of(self, name: str) -> Path:
        self.check_name(name)
        path = self._root / name
        if path == self._root:
            raise self.damaged(f"member {name!r} is the folder itself, expected a file or a link below it")
        self._ensure_folder(path.parent)
        with contextlib.suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                raise self.damaged(f"member {name} is a folder already")
            path.unlink()
        return path

    def _ensure_folder(self, folder: Path) -> None:
        if folder in self._folders or folder == self._root:
            return
        self._ensure_folder(folder.parent)
        if folder.is_symlink():
            raise self.damaged(f"a member lies below the link {folder.relative_to(self._root)}")
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise self.damaged(f"a member lies below the file {folder.relative_to(self._root)}") from None
        self._folders.add(folder)


def unpack_deb(archive: Path, root: Path, *, skip: Sequence[str] = ()) -> int:
    """Unpack the data of a .deb below ``root`` and return the newest time of its files (seconds since 1970).

    Raises IntegrityError when the file is damaged or a member would leave ``root``.
    """
    writer = TreeWriter(root, archive, skip=skip)
    newest = 0
    try:
        for member, stream in members_of_tar(archive, part=_data_member(archive, writer)):
            name = PurePosixPath(member.name).as_posix().removeprefix("./")
            if writer.is_skipped(name):
                continue
            if stream is not None:
                writer.write_file(name, stream, executable=bool(member.mode & 0o111))
                newest = max(newest, int(member.mtime))
            elif member.issym():
                writer.write_link(name, member.linkname)
            elif member.islnk():
                writer.write_hard_link(name, member.linkname)
            elif member.isdir():
                writer.make_folder(name)
            else:
                raise writer.damaged(f"member {name} is neither file, folder nor link")
    except TAR_FAULTS as err:
        raise writer.damaged(f"no complete .deb: {str(err) or type(err).__name__}") from None
    return newest


def unpack_conda(package: Path, root: Path) -> None:
    """Unpack the files of a ``.conda`` package below ``root``, where others may lie. The prefix is not filled in.

    Raises IntegrityError when the package is damaged or a member would leave ``root``.
    """
    writer = TreeWriter(root, package)
    for member, stream in stream_component(package, "pkg"):
        if stream is not None:
            writer.write_file(member.name, stream, executable=bool(member.mode & 0o111))
        elif member.issym():
            writer.write_link(member.name, member.linkname)


def _data_member(archive: Path, writer: TreeWriter) -> ArMember:
    """The one with the package's files. Raises IntegrityError when there is none or any member is cut short."""
    with archive.open("rb") as raw:
        if raw.read(len(AR_MAGIC)) != AR_MAGIC:
            raise writer.damaged("no complete .deb: it does not begin as an ar archive")
        try:
            members = list(ar_members(raw))
        except IntegrityError as err:
            raise writer.damaged(f"no complete .deb: {err.message}") from None
    data = next((member for member in members if member.name.startswith("data.tar")), None)
    if data is None:
        raise writer.damaged("the .deb holds no data.tar")
    if PurePosixPath(data.name).suffix not in _DATA_SUFFIXES:
        raise writer.damaged(f"{data.name} is compressed in an unknown way; known: .xz, .gz, .zst or none")
    return data
