# SPDX-License-Identifier: BSD-3-Clause
"""Code shared by all kinds of archives: safe member paths, tar streams, and the members of ``ar`` files.

``MemberPaths`` follows links as a file system would, so members that are harmless one by one cannot lead out of the
folder together. ``ar`` is read here because Debian packages use only its short names, while static libraries use the
long names of GNU and BSD.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import os
import posixpath
import tarfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import zstandard

from channel_tools.system.errors import IntegrityError
from channel_tools.system.tarstream import Bz2Stream, tar_members, unpacked_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.system.tarstream import Members

TAR_FAULTS = (
    tarfile.TarError,
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    zstandard.ZstdError,
    MemoryError,  # an archive by xz says how much of it to keep in memory
)
"""The exceptions that reading a damaged tar archive raises, however it is compressed."""
AR_MAGIC = b"!<arch>\n"
_LINKS_DEEP = 40
_NAME_BYTES = 255
FOLDERS_DEEP = 250
"""Programs go through folders by recursion, Python's within 1,000 calls; the deepest real ones have 30."""
_HEADER_BYTES = 60
_HEADER_END = b"`\n"
_INDEXES = frozenset({b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED"})
_LONG_NAMES = b"//"
_BSD_NAME = b"#1/"


class UnsafeMemberError(ValueError):
    """A member of an archive must not be unpacked; the message names it and says why."""


def check_member_path(name: str) -> None:
    """Raise UnsafeMemberError unless a member of this name would be written inside the destination folder."""
    if not _stays_inside(name) or ".." in name.split("/"):
        raise UnsafeMemberError(f"member {name!r} would be written outside the folder")
    if len(name) > _NAME_BYTES // 4 and any(len(os.fsencode(part)) > _NAME_BYTES for part in name.split("/")):
        raise UnsafeMemberError(f"member {name[:80]!r}... has a name that is too long for a file system")
    if name.count("/") > FOLDERS_DEEP:
        raise UnsafeMemberError(f"member {name[:80]!r}... is more than {FOLDERS_DEEP} folders deep")


def check_link(name: str, target: str) -> None:
    """Raise UnsafeMemberError if the symbolic link ``name`` with this target points out of the folder."""
    if not _stays_inside(posixpath.join(posixpath.dirname(name), target)):
        raise UnsafeMemberError(f"link {name!r} points outside the folder, to {target!r}")


class MemberPaths:
    """The paths that an archive would write; links are followed as a file system would."""

    def __init__(self) -> None:
        self._links: dict[str, str] = {}
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, member: tarfile.TarInfo) -> None:
        """Raise UnsafeMemberError unless the member stays inside the folder and does not conflict with earlier ones."""
        name = member.name
        check_member_path(name)
        normal = posixpath.normpath(name)
        if member.isdir():
            self._folders.add(normal)
            return
        if normal == "." or normal in self._files or normal in self._links:
            raise UnsafeMemberError(f"member {name!r} would be written over another one")
        self._folders.add(posixpath.dirname(normal))
        if member.issym():
            check_link(name, member.linkname)
            self._links[normal] = member.linkname
        elif member.islnk():
            self._check_hard_link(member)
            self._files.add(normal)
        elif member.isreg():
            self._files.add(normal)
        else:
            raise UnsafeMemberError(f"member {name!r} is neither a file, a folder nor a link")

    def check_all(self) -> None:
        """Raise UnsafeMemberError if a path is both a file and a folder, or links together lead out of the folder."""
        if clashing := sorted(self._folders & self._files):
            raise UnsafeMemberError(f"{clashing[0]} in it is both a file and a folder")
        check_links(self._links, self._folders)

    def _check_hard_link(self, member: tarfile.TarInfo) -> None:
        link = f"hard link {member.name!r} points"
        if not _stays_inside(member.linkname):
            raise UnsafeMemberError(f"{link} outside the folder, to {member.linkname!r}")
        if posixpath.normpath(member.linkname) not in self._files:
            raise UnsafeMemberError(f"{link} to {member.linkname!r}, which is not a file that comes before it")


def check_links(links: Mapping[str, str], folders: Iterable[str]) -> None:
    """Raise UnsafeMemberError if following ``links`` (path and target) leads out of the folder in which all are.

    ``folders`` are the paths in which something would be written.
    """
    if not links:
        return
    targets = (posixpath.join(posixpath.dirname(name), target) for name, target in links.items())
    for path in sorted({*folders, *targets}):
        if not _leads_inside(path, links):
            raise UnsafeMemberError(f"links in it lead outside the folder, by way of {path!r}")


def _leads_inside(path: str, links: Mapping[str, str]) -> bool:
    """Whether ``path`` with all links followed is inside; circular links are, since nothing can be written there."""
    todo = path.split("/")[::-1]
    resolved: list[str] = []
    followed = 0
    while todo:
        part = todo.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            if not resolved:
                return False
            resolved.pop()
            continue
        resolved.append(part)
        target = links.get("/".join(resolved))
        if target is not None:
            if target.startswith("/"):
                return False
            followed += 1
            if followed > _LINKS_DEEP:
                return True
            resolved.pop()
            todo += target.split("/")[::-1]
    return True


def _stays_inside(name: str) -> bool:
    if not name or name.startswith("/") or "\0" in name:
        return False
    normal = posixpath.normpath(name)
    return normal != ".." and not normal.startswith("../")


def members_of_tar(path: Path, *, part: ArMember | None = None) -> Members:
    """The members of a tar archive with any compression, as tar_members gives them, to the end of the file.

    The archive is the whole file, or a ``part`` of it. Raises TAR_FAULTS if it is damaged, also by its checksums, or
    unpacks to far more than any archive of its size.
    """
    with path.open("rb") as raw:
        packed = raw if part is None else io.BufferedReader(Window(raw, part.offset, part.size_bytes))
        size_bytes = os.fstat(raw.fileno()).st_size if part is None else part.size_bytes
        with contextlib.closing(_decompressed(packed)) as plain:
            yield from tar_members(plain, limit_bytes=unpacked_limit(size_bytes))


def _decompressed(packed: io.BufferedReader[Any]) -> IO[bytes] | Bz2Stream:
    """The decompressed stream; the format is detected by the first bytes, since file names are sometimes wrong."""
    head = packed.peek(6)
    if head.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=packed))
    if head.startswith(b"BZh"):
        return Bz2Stream(packed)
    if head.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return cast("IO[bytes]", lzma.LZMAFile(packed))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        stream = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True, closefd=False)
        return cast("IO[bytes]", stream)
    return packed


class Window(io.RawIOBase):
    """A part of a file as a separate stream."""

    def __init__(self, stream: IO[bytes], offset: int, size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes
        stream.seek(offset)

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the only kind that io passes
        """Read the next bytes into the buffer; returns how many there were."""
        count = self._stream.readinto(memoryview(buffer)[: self._left])  # type: ignore[attr-defined]
        self._left -= count
        return int(count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArMember:
    """A file of an ``ar`` archive: the position of its content."""

    name: str
    offset: int
    size_bytes: int


def ar_members(stream: BinaryIO) -> Iterator[ArMember]:
    """The files of a seekable ``ar`` archive, in their order, without its index.

    The caller has checked that it starts with AR_MAGIC. Raises IntegrityError if it is damaged.
    """
    end = stream.seek(0, os.SEEK_END)
    offset = len(AR_MAGIC)
    long_names = b""
    while offset < end:
        stream.seek(offset)
        header = stream.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or not header.endswith(_HEADER_END):
            raise IntegrityError(f"expected the header of a member at offset {offset:#x}")
        name, size = header[:16].rstrip(b" "), _number(header[48:58].strip(), offset)
        start = offset + _HEADER_BYTES
        if start + size > end:
            raise IntegrityError(f"the member at offset {offset:#x} is cut short")
        offset = start + size + size % 2
        if name == _LONG_NAMES:
            stream.seek(start)
            long_names = stream.read(size)
            continue
        if name in _INDEXES:
            continue
        if name.startswith(_BSD_NAME):
            length = min(_number(name.removeprefix(_BSD_NAME), start), size)
            stream.seek(start)
            name = stream.read(length).rstrip(b"\0")
            start, size = start + length, size - length
        elif name[:1] == b"/":
            name = long_names[_number(name[1:], start) :].partition(b"\n")[0]
        yield ArMember(name=name.removesuffix(b"/").decode(errors="replace"), offset=start, size_bytes=size)


def _number(text: bytes, offset: int) -> int:
    if not text.isdigit():
        raise IntegrityError(f"the header at offset {offset:#x} has {text!r}; expected a number")
    return int(text)
