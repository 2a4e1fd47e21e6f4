# SPDX-License-Identifier: BSD-3-Clause
"""The tar archives in conda's packages: compressed by zstd or bzip2, and how much they may unpack to."""

from __future__ import annotations

import bz2
import tarfile
from typing import IO, TYPE_CHECKING

import zstandard

from channel_tools.system.tarstream import MEMBERS, tar_members

if TYPE_CHECKING:
    from channel_tools.system.tarstream import Members, Readable

SMALL_BYTES = 1 << 20
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


def stream_tar(packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None) -> Members:
    """The members of a ``tar.zst``, as tar_members gives them.

    The unpacked size is limited by the packed size, and by ``limit_bytes`` if that is less. Raises tarfile.TarError and
    zstandard.ZstdError for damaged or excessive data, also after the archive's end.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    with decompressor.stream_reader(packed, read_across_frames=True, closefd=False) as plain:
        yield from _limited_members(plain, packed_bytes, limit_bytes)


def _limited_members(plain: Readable, packed_bytes: int, limit_bytes: int | None) -> Members:
    limit = min(_FREE_BYTES + _RATIO * packed_bytes, _MOST_BYTES)
    return tar_members(
        plain,
        limit_bytes=limit if limit_bytes is None else min(limit, limit_bytes),
        limit_members=min(MEMBERS, _FREE_MEMBERS + packed_bytes // _MEMBER_BYTES),
    )


def stream_bz2_tar(packed: IO[bytes], packed_bytes: int, *, limit_bytes: int | None = None) -> Members:
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
