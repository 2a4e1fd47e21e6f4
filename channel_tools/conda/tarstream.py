# SPDX-License-Identifier: BSD-3-Clause
"""Reads a ``tar.zst`` or ``tar.bz2`` in bounded memory, whatever its content.

Uses the standard library's tar reader, but rejects what it would accept: bytes in the middle that are not a header,
headers with megabytes of metadata, negative sizes, sparse files, and bytes after the end.
"""

from __future__ import annotations

import bz2
import io
import tarfile
from typing import IO, TYPE_CHECKING, Protocol, cast

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 18
_SMALL_PLAIN_BYTES = 4 << 20
_START_BYTES = 64 << 10
"""Read at a time: a buffer of some MB is mapped for each archive, which takes longer than to unpack a small one."""
_HEADER_BYTES = 16 << 10
_HEADERS = 8
"""A member may have this many headers: GNU's two for long names, pax's own and the one for all, each perhaps twice."""
_MEMBERS = 1_000_000
_FREE_MEMBERS = 20_000
_MEMBER_BYTES = 8
"""An archive may have this many members, and one more for as many of its own bytes: reading each takes 30 us, and the
headers of real ones, each with its own name, size and checksum, pack to 20 bytes and more."""
_FREE_BYTES = 256 << 20
_RATIO = 250
"""An archive may unpack to 256 MiB and this many times its own size: libraries reach 10, text 50."""
_MOST_BYTES = 64 << 30
"""An archive may unpack to this in any case, which takes the audit some minutes; the largest real ones have 10 GB."""
_WINDOW_BYTES = 128 << 20
"""What a zstd frame may ask a reader to keep in memory: as much as zstd's own programs and libraries grant unasked."""
_LATEST_S = 1 << 40
"""Later times, in seconds since 1970, cannot be set by clients."""
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
_NUMBERS = ((100, 108), (108, 116), (116, 124), (124, 136), (136, 148), (148, 156))
_BLANK_SUM = 8 * ord(" ")
"""The checksum is taken with its own field blank."""
_END = bytes(tarfile.BLOCKSIZE)


class _Readable(Protocol):
    """A stream of unpacked bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""


class _Limited:
    """The unpacked bytes, up to a limit."""

    def __init__(self, source: _Readable, limit_bytes: int) -> None:
        self._source = source
        self._left = limit_bytes

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ReadError if there are more than allowed."""
        chunk = self._source.read(size)
        self._left -= len(chunk)
        if self._left < 0:
            raise tarfile.ReadError("unpacks to far more bytes than any package")
        return chunk


def stream_tar(
    packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Every member of a ``tar.zst`` with a stream of its bytes (None for what has none), to be read before the next.

    The unpacked size is limited by the packed size, and by ``limit_bytes`` if that is less. Raises tarfile.TarError and
    zstandard.ZstdError for damaged or excessive data, also after the archive's end.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    with decompressor.stream_reader(packed, read_across_frames=True, closefd=False) as plain:
        yield from _limited_members(plain, packed_bytes, limit_bytes)


def _limited_members(
    plain: _Readable, packed_bytes: int, limit_bytes: int | None
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    limit = min(_FREE_BYTES + _RATIO * packed_bytes, _MOST_BYTES)
    members = min(_MEMBERS, _FREE_MEMBERS + packed_bytes // _MEMBER_BYTES)
    limited = _Limited(plain, limit if limit_bytes is None else min(limit, limit_bytes))
    start, is_whole = _start(limited) if packed_bytes <= SMALL_BYTES else (b"", False)
    if is_whole and (plainly := plain_members(start)) is not None:
        yield from plainly
        return
    yield from _members(_Forward(start, limited), members)


def stream_bz2_tar(
    packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """As stream_tar, for a ``tar.bz2``."""
    with bz2.BZ2File(packed) as plain:
        yield from _limited_members(_Bz2(plain), packed_bytes, limit_bytes)


class _Bz2:
    """The unpacked bytes; damage is a ReadError, while bz2 has an OSError for it."""

    def __init__(self, source: bz2.BZ2File) -> None:
        self._source = source

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ReadError for damage."""
        try:
            return self._source.read(size)
        except OSError as err:
            if err.errno is not None:  # of the device
                raise
            raise tarfile.ReadError(str(err)) from None


def plain_members(archive: bytes) -> list[tuple[tarfile.TarInfo, IO[bytes] | None]] | None:
    """The members of a small archive of plain files, folders and symbolic links, as from tarfile.

    Returns None for anything unusual, which is left to tarfile. When a channel is indexed from scratch, tarfile would
    spend most of the time on headers that all look the same.
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
    numbers = [header[start:end].partition(b"\0")[0].strip(b" ") for start, end in _NUMBERS]
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
    """The first bytes, and whether that is everything: small archives are read faster from memory."""
    start = bytearray()
    while len(start) < _SMALL_PLAIN_BYTES:
        if not (chunk := source.read(_START_BYTES)):
            return bytes(start), True
        start += chunk
    return bytes(start), False


class _Forward:
    """A forward-only stream for tarfile: ``start``, then ``remaining``, read in large chunks."""

    def __init__(self, start: bytes, remaining: _Limited) -> None:
        self._chunk = start
        self._at = 0
        self._before = 0
        self._remaining = remaining

    def tell(self) -> int:
        """The number of bytes read so far."""
        return self._before + self._at

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end."""
        end = self._at + size
        if end <= len(self._chunk):
            content = self._chunk[self._at : end]
            self._at = end
            return content
        parts = [self._chunk[self._at :]]
        missing = size - len(parts[0])
        while missing > 0:
            self._before += len(self._chunk)
            self._chunk = self._remaining.read(_CHUNK_BYTES)
            self._at = min(missing, len(self._chunk))
            parts.append(self._chunk[: self._at])
            missing -= self._at
            if not self._chunk:
                break
        return b"".join(parts)

    def seek(self, position: int) -> None:
        """Go forward, at most to the end. Raises StreamError for an earlier position."""
        if position < self.tell():
            raise tarfile.StreamError("an archive is read forward only")
        while (left := position - self.tell()) and self.read(min(left, _CHUNK_BYTES)):
            pass


class _Content:
    """A stream of the bytes of the member whose header was read last."""

    def __init__(self, source: _Forward, size: int) -> None:
        self._source = source
        self._at = source.tell()
        self._end = self._at + size

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ReadError if the archive ends early, StreamError if another member was read."""
        if self._source.tell() != self._at:
            raise tarfile.StreamError("a member must be read before the next one")
        remaining = self._end - self._at
        count = remaining if size < 0 else min(size, remaining)
        content = self._source.read(count)
        if len(content) < count:
            raise tarfile.ReadError("unexpected end of data")
        self._at += count
        return content


def _members(source: _Forward, limit: int) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    headers = _Headers(source)
    with _opened(headers) as archive:
        member = archive.next()
        count = 0
        while member is not None:
            count += 1
            if count > limit:
                raise tarfile.ReadError(f"more than {limit} members, which no archive of its size has")
            _check(member)
            end = headers.end_of(member)  # who gets the member may change it, such as its size, to write it elsewhere
            yield member, cast("IO[bytes]", _Content(source, member.size)) if member.isreg() else None
            headers.skip_to(end)
            member = _next_member(archive, headers)
    while chunk := source.read(_CHUNK_BYTES):
        if chunk != bytes(len(chunk)):
            raise tarfile.ReadError("there are bytes after the archive's end")


def _opened(headers: _Headers) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast("IO[bytes]", headers), mode="r:")  # which reads the first member's headers
    except tarfile.ReadError:
        headers.check_end()
        raise


def _check(member: tarfile.TarInfo) -> None:
    if member.issparse():
        raise tarfile.ReadError(f"{member.name!r} is a sparse file")
    if member.size < 0 or not -_LATEST_S < member.mtime < _LATEST_S:
        raise tarfile.ReadError(f"{member.name!r} has {member.size} bytes, and its time is {member.mtime}")


def _next_member(archive: tarfile.TarFile, headers: _Headers) -> tarfile.TarInfo | None:
    """The member whose header is next, None if none is.

    TarFile.next would keep every member, and take a damaged header for the archive's end.
    """
    if not archive.pax_headers and (member := headers.plain_member()) is not None:
        return member
    try:
        return tarfile.TarInfo.fromtarfile(archive)
    except tarfile.HeaderError:
        headers.check_end()
        return None


class _Headers:
    """The file that tarfile reads headers from. Raises ReadError for more of them than any member needs.

    Everything else is read from ``source`` by its own streams.
    """

    def __init__(self, source: _Forward) -> None:
        self._source = source
        self._block = b""
        """What was read last: at an archive's end blank or nothing."""
        self._unread = b""
        """A header that was looked at only."""
        self._pieces = 0
        """How many of them were read for the present member."""

    def tell(self) -> int:
        """The position in the archive."""
        return self._source.tell() - len(self._unread)

    def read(self, size: int) -> bytes:
        """A header, or the text that describes the next one."""
        self._block = b""
        if not 0 <= size <= _HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self._pieces += 1
        if self._pieces > _HEADERS * 2:
            raise tarfile.ReadError(f"more than {_HEADERS} headers for one member")
        unread, self._unread = self._unread, b""
        self._block = unread or self._source.read(size)
        return self._block

    def plain_member(self) -> tarfile.TarInfo | None:
        """The next member if its header is a plain one, which need not be read by tarfile."""
        self._unread = self._source.read(tarfile.BLOCKSIZE)
        member = _plain_header(self._unread)
        if member is not None:
            self._unread = b""
            member.offset_data = self._source.tell()
            member.offset = member.offset_data - tarfile.BLOCKSIZE
        return member

    def end_of(self, member: tarfile.TarInfo) -> int:
        """Where the header after ``member`` begins."""
        has_content = member.isreg() or not (member.isdir() or member.issym() or member.islnk() or member.isdev())
        blocks = -(-member.size // tarfile.BLOCKSIZE) if has_content else 0
        return member.offset_data + blocks * tarfile.BLOCKSIZE

    def skip_to(self, end: int) -> None:
        """Go to the header at ``end``. Raises ReadError if the archive ends before."""
        self._pieces = 0
        self._source.seek(end)
        if self._source.tell() < end:
            raise tarfile.ReadError("unexpected end of data")

    def check_end(self) -> None:
        """Raise ReadError unless an archive's end was read where a member's first header may be."""
        if self._pieces > 1 or self._block not in (b"", _END):
            raise tarfile.ReadError("damaged header")
