# SPDX-License-Identifier: BSD-3-Clause
"""Bundles as one tar file: plain, since what they hold is compressed, and with nothing in it but files.

The reader takes headers of plain files only, and GNU's for names that are too long for one, and walks them itself: so
no member can climb out, stand for another, or make the reader allocate more than a few blocks.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.mirror.model import BundleRefusedError, bundle_damaged, is_safe_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_BLOCK = tarfile.BLOCKSIZE
_END_BLOCKS = 2
_OCTAL_LIMIT = 8**11
_NAME_LIMIT_BYTES = 1024
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """Where the bytes of a file lie in a tar file."""

    offset: int
    size_bytes: int


def write_members(
    destination: IO[bytes], members: Iterable[tuple[str, Path]], *, executable_bits: bool = False
) -> None:
    """Write files one after the other, as ``(path, file)``; the same files give the same bytes."""
    for name, path in members:
        with path.open("rb") as stream:
            size_bytes = path.stat().st_size
            executable = executable_bits and os.access(path, os.X_OK)
            destination.write(_header(name, size_bytes, mode=0o755 if executable else 0o644))
            shutil.copyfileobj(stream, destination, 1 << 20)
            destination.write(b"\0" * (-size_bytes % _BLOCK))
    destination.write(b"\0" * (_END_BLOCKS * _BLOCK))


def _header(name: str, size_bytes: int, *, mode: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size_bytes, mode, 0
    if size_bytes < _OCTAL_LIMIT:
        try:
            return info.tobuf(tarfile.USTAR_FORMAT)
        except ValueError:  # its name is too long for the format of the standard
            pass
    return info.tobuf(tarfile.GNU_FORMAT)


def read_members(file: Path) -> dict[str, Member]:
    """The files in a tar file, by path. Raises BundleRefusedError for anything but plain, complete, safe members."""
    found: dict[str, Member] = {}
    with file.open("rb") as stream:
        size_bytes = stream.seek(0, 2)
        for info, offset in _headers(stream, file, size_bytes):
            if info.type not in _PLAIN:
                raise BundleRefusedError("unsafe", f"{file}: member {info.name!r} is no plain file")
            if not is_safe_path(info.name):
                raise BundleRefusedError("unsafe", f"{file}: member {info.name!r} may not have this name")
            if info.name in found:
                raise BundleRefusedError("unsafe", f"{file}: member {info.name!r} is there twice")
            if offset + info.size > size_bytes:
                raise bundle_damaged(file, f"ends within {info.name}: it is cut short")
            found[info.name] = Member(offset=offset, size_bytes=info.size)
    return found


def _headers(stream: IO[bytes], file: Path, size_bytes: int) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Members with the places of their bytes."""
    long_name = None
    for info, offset in _blocks(stream, file, size_bytes):
        if info.type == tarfile.GNUTYPE_LONGNAME and long_name is None and info.size <= _NAME_LIMIT_BYTES:
            stream.seek(offset)
            long_name = stream.read(info.size).rstrip(b"\0").decode("utf-8", "replace")
            continue
        if long_name is not None:
            info.name, long_name = long_name, None
        yield info, offset


def _blocks(stream: IO[bytes], file: Path, size_bytes: int) -> Iterator[tuple[tarfile.TarInfo, int]]:
    position = 0
    while True:
        stream.seek(position)
        block = stream.read(_BLOCK)
        if not block.strip(b"\0") and len(block) == _BLOCK:
            _check_end(stream, file)
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as err:
            what = "it is cut short" if position >= size_bytes - _BLOCK else f"no header of a member there ({err})"
            if position == 0:
                what = "it is no tar file"
            raise bundle_damaged(file, f"at byte {position}: {what}") from None
        if info.size < 0:
            raise bundle_damaged(file, f"at byte {position}: a member of {info.size} bytes")
        yield info, position + _BLOCK
        position += _BLOCK + info.size + (-info.size % _BLOCK)


def _check_end(stream: IO[bytes], file: Path) -> None:
    """Nothing may follow the end mark: it would be in the file, but in no list."""
    while chunk := stream.read(1 << 20):
        if chunk.strip(b"\0"):
            raise BundleRefusedError("added", f"{file}: there are bytes behind the end of the archive")
