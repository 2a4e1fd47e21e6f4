# SPDX-License-Identifier: BSD-3-Clause
"""Reading a ``tar.zst`` in bounded memory, whatever its bytes say.

The standard tar reader is kept, but told to refuse what it would forgive: a header in the middle that is none, one that
asks for megabytes of metadata, sizes below zero, sparse files, and bytes after the end.
"""

from __future__ import annotations

import io
import tarfile
from typing import IO, TYPE_CHECKING, cast

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 18
_SMALL_PLAIN_BYTES = 4 << 20
_HEADER_BYTES = 16 << 10
_MEMBERS = 1_000_000
_FREE_BYTES = 1 << 30
_RATIO = 250
"""An archive may unpack to a GiB and this many times its own size: libraries reach 10, text 50."""
_METADATA_TYPES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
_NUMBERS = ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148), (148, 156))
_BLANK_SUM = 8 * ord(" ")
"""The checksum is taken with its own field blank."""
_END = bytes(tarfile.BLOCKSIZE)


class _Member(tarfile.TarInfo):
    """A header as the standard library reads it, but strictly."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """Raises ReadError where tarfile would take a damaged header for the end of the archive."""
        try:
            member = super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as err:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"damaged header: {err}") from None
        if member.size < 0 or (member.type in _METADATA_TYPES and member.size > _HEADER_BYTES):
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


class _Limited:
    """The unpacked bytes, up to a limit."""

    def __init__(self, source: zstandard.ZstdDecompressionReader, limit_bytes: int) -> None:
        self._source = source
        self._left = limit_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ReadError when there are more than there may be."""
        chunk = self._source.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise tarfile.ReadError("unpacks to far more bytes than any package")
        return chunk


def stream_tar(packed: IO[bytes], packed_bytes: int) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Every member of a ``tar.zst`` with a stream of its bytes (None for what has none), to be read before the next.

    Raises tarfile.TarError and zstandard.ZstdError for what is damaged or excessive, also behind the archive's end.
    """
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True, closefd=False) as plain:
        limited = _Limited(plain, _FREE_BYTES + _RATIO * packed_bytes)
        start, whole = _start(limited) if packed_bytes <= SMALL_BYTES else (b"", False)
        if whole and (plainly := plain_members(start)) is not None:
            yield from plainly
            return
        source = cast("IO[bytes]", _Joined(start, limited))  # tarfile reads, and does nothing else with it
        with (
            tarfile.open(fileobj=io.BytesIO(start), mode="r:", tarinfo=_Member)
            if whole
            else tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK_BYTES, tarinfo=_Member) as archive
        ):
            yield from _members(archive)


def plain_members(archive: bytes) -> list[tuple[tarfile.TarInfo, IO[bytes] | None]] | None:
    """The members of a small archive of plain files, folders and symbolic links, as tarfile would give them.

    None for everything out of the ordinary, which is left to tarfile: that spends most of the time that indexing a
    channel from nothing takes on headers which all look the same.
    """
    members: list[tuple[tarfile.TarInfo, IO[bytes] | None]] = []
    at = 0
    while (header := archive[at : at + tarfile.BLOCKSIZE]) != _END:
        member = _plain_header(header)
        if member is None:
            return None
        member.offset, member.offset_data = at, at + tarfile.BLOCKSIZE
        end = member.offset_data + member.size
        content = io.BytesIO(archive[member.offset_data : end]) if member.isreg() else None
        members.append((member, content))
        at = member.offset_data + -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        if at > len(archive):
            return None
    return members if members and archive[at:] == bytes(len(archive) - at) else None


def _plain_header(header: bytes) -> tarfile.TarInfo | None:
    if len(header) != tarfile.BLOCKSIZE:
        return None
    kind = header[156:157]
    numbers = [header[start:end].strip(b"\0 ") for start, end in _NUMBERS]
    if kind not in _PLAIN_TYPES or header[257:262] != b"ustar" or header[345] or not all(map(bytes.isdigit, numbers)):
        return None
    try:
        mode, uid, gid, size, mtime, checksum = (int(number, 8) for number in numbers)
    except ValueError:  # an 8 or a 9
        return None
    if checksum != _BLANK_SUM + sum(header[:148]) + sum(header[156:]) or (size and kind != tarfile.REGTYPE):
        return None
    member = tarfile.TarInfo(_text(header[:100]))
    if kind == tarfile.DIRTYPE:
        member.name = member.name.rstrip("/")
    member.type, member.mode, member.uid, member.gid, member.size = kind, mode, uid, gid, size
    member.mtime, member.chksum, member.linkname = mtime, checksum, _text(header[157:257])
    member.uname, member.gname = _text(header[265:297]), _text(header[297:329])
    return member


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(tarfile.ENCODING or "utf-8", "surrogateescape")


def _start(source: _Limited) -> tuple[bytes, bool]:
    """The first bytes, and whether they are all: small archives are read faster from memory."""
    start = b""
    while len(start) < _SMALL_PLAIN_BYTES:
        if not (chunk := source.read(_SMALL_PLAIN_BYTES)):
            return start, True
        start += chunk
    return start, False


class _Joined:
    """What was read already, then the rest."""

    def __init__(self, start: bytes, rest: _Limited) -> None:
        self._start = io.BytesIO(start)
        self._rest = rest

    def read(self, size: int) -> bytes:
        """The next bytes, fewer than ``size`` also before the end."""
        return self._start.read(size) or self._rest.read(size)


def _members(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    count = 0
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # it would remember all of them
        count += 1
        if count > _MEMBERS or member.issparse():
            raise tarfile.ReadError(f"{member.name}: a sparse file, or one of more than {_MEMBERS} members")
        yield member, archive.extractfile(member) if member.isreg() else None
    while chunk := archive.fileobj.read(_CHUNK_BYTES):
        if chunk != bytes(len(chunk)):
            raise tarfile.ReadError("there are bytes behind the archive's end")
