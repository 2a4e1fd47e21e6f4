# SPDX-License-Identifier: BSD-3-Clause
"""The one reader of tar archives: member by member, in bounded memory, whatever the archive's content.

The standard library's reader parses the headers (``TarInfo.fromtarfile``), but of a file that gives it no more of them
than a member needs. So this rejects what the library would accept or take the archive's end for: bytes in the middle
that are not a header, headers with megabytes of metadata, negative sizes, sparse files, bytes after the end. A
``TarFile`` that is iterated over keeps every member in memory; here none is kept.
"""

from __future__ import annotations

import bz2
import tarfile
from typing import IO, TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    Members = Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]

_CHUNK_BYTES = 1 << 18
_START_BYTES = 64 << 10
"""Read first: a buffer of some MB is mapped for each archive, which takes longer than to unpack a small one."""
_HEADER_BYTES = 16 << 10
_HEADERS = 8
"""A member may have this many headers: GNU's two for long names, pax's own and the one for all, each perhaps twice."""
MEMBERS = 1_000_000
"""An archive may have this many members."""
_FREE_BYTES = 256 << 20
_RATIO = 250
"""An archive may unpack to 256 MiB and this many times its own size: libraries reach 10, text 50."""
_MOST_BYTES = 64 << 30
"""An archive may unpack to this in any case, which takes the audit some minutes; the largest real ones have 10 GB."""
_LATEST_S = 1 << 40
"""Later times, in seconds since 1970, cannot be set by clients."""
_END = bytes(tarfile.BLOCKSIZE)


def unpacked_limit(packed_bytes: int) -> int:
    """The bytes that an archive of this size may unpack to."""
    return min(_FREE_BYTES + _RATIO * packed_bytes, _MOST_BYTES)


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""


def tar_members(
    plain: Readable, *, limit_bytes: int | None = None, limit_members: int = MEMBERS, file: IO[bytes] | None = None
) -> Members:
    """Every member of an uncompressed archive with a stream of its bytes (None for what has none).

    A member's bytes are read before the next member, or not at all; its ``offset_data`` is where they begin. ``file``
    is ``plain`` where that is a file in which one can go forward without reading.

    Raises tarfile.ReadError for an archive that is damaged or cut short, has more than ``limit_bytes`` or
    ``limit_members``, or anything after its end.
    """
    source = _Forward(plain, limit_bytes, file)
    headers = _Headers(source)
    with _opened(headers) as archive:
        member = archive.next()
        count = 0
        while member is not None:
            count += 1
            if count > limit_members:
                raise tarfile.ReadError(f"more than {limit_members} members, which no archive of its size has")
            if member.issparse():
                raise tarfile.ReadError(f"{member.name!r} is a sparse file")
            if member.size < 0 or not -_LATEST_S < member.mtime < _LATEST_S:
                raise tarfile.ReadError(f"{member.name!r} has {member.size} bytes, and its time is {member.mtime}")
            end = headers.end_of(member)  # who gets the member may change it, such as its size, to write it elsewhere
            yield member, cast("IO[bytes]", _Content(source, member.size)) if member.isreg() else None
            headers.skip_to(end)
            try:
                member = tarfile.TarInfo.fromtarfile(archive)
            except tarfile.HeaderError:
                headers.check_end()
                member = None
    while chunk := source.read(_CHUNK_BYTES):
        if chunk != bytes(len(chunk)):
            raise tarfile.ReadError("there are bytes after the archive's end")


class Bz2Stream:
    """The bytes that a file compressed by bzip2 unpacks to; damage is a ReadError, while bz2 has an OSError for it."""

    def __init__(self, packed: IO[bytes]) -> None:
        self._source = bz2.BZ2File(packed)

    def read(self, size: int = -1) -> bytes:
        """The next bytes. Raises ReadError for damage."""
        try:
            return self._source.read(size)
        except OSError as err:
            if err.errno is not None:  # of the device
                raise
            raise tarfile.ReadError(str(err)) from None

    def close(self) -> None:
        """Free what unpacking took."""
        self._source.close()


class _Forward:
    """A stream that is read in large chunks and only forward, up to a limit."""

    def __init__(self, source: Readable, limit_bytes: int | None, file: IO[bytes] | None) -> None:
        self._source = source
        self._file = file
        self._left = limit_bytes
        self._chunk = b""
        self._at = 0
        self._before = 0

    def tell(self) -> int:
        """The number of bytes read so far."""
        return self._before + self._at

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end. Raises ReadError if there are more than allowed."""
        end = self._at + size
        if end <= len(self._chunk):
            content = self._chunk[self._at : end]
            self._at = end
            return content
        parts = [self._chunk[self._at :]]
        missing = size - len(parts[0])
        while missing > 0:
            self._before += len(self._chunk)
            self._chunk = self._source.read(_CHUNK_BYTES if self._before else _START_BYTES)
            if self._left is not None:
                self._left -= len(self._chunk)
                if self._left < 0:
                    raise tarfile.ReadError("unpacks to far more bytes than any archive of its size")
            self._at = min(missing, len(self._chunk))
            parts.append(self._chunk[: self._at])
            missing -= self._at
            if not self._chunk:
                break
        return b"".join(parts)

    def seek(self, position: int) -> None:
        """Go forward, at most to the end. Raises StreamError for an earlier position."""
        left = position - self.tell()
        if left < 0:
            raise tarfile.StreamError("an archive is read forward only")
        if self._file is not None and left > len(self._chunk) - self._at:
            self._before, self._chunk, self._at = self._file.seek(position - 1), b"", 0
            left = 1  # which is read: a file that ends before this position is cut short
        while left and (passed := len(self.read(min(left, _CHUNK_BYTES)))):
            left -= passed


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


def _opened(headers: _Headers) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast("IO[bytes]", headers), mode="r:")  # which reads the first member's headers
    except tarfile.ReadError:
        headers.check_end()
        raise


class _Headers:
    """The file that tarfile reads headers from. Raises ReadError for more of them than any member needs.

    Everything else is read from ``source`` by its own streams.
    """

    def __init__(self, source: _Forward) -> None:
        self._source = source
        self._block = b""
        """What was read last: at an archive's end blank or nothing."""
        self._pieces = 0
        """How many of them were read for the present member."""

    def tell(self) -> int:
        """The position in the archive."""
        return self._source.tell()

    def read(self, size: int) -> bytes:
        """A header, or the text that describes the next one."""
        self._block = b""
        if not 0 <= size <= _HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self._pieces += 1
        if self._pieces > _HEADERS * 2:
            raise tarfile.ReadError(f"more than {_HEADERS} headers for one member")
        self._block = self._source.read(size)
        return self._block

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
