# SPDX-License-Identifier: BSD-3-Clause
"""Opens the zip around the parts of a ``.conda`` file, only if every reader of packages finds the same parts in it.

A zip has the same data twice, in its directory and before each member, and may have bytes that belong to neither. Here,
both must agree, and no other bytes are allowed. Members must be stored, as the format and rattler require, so the
unpacked size of a part is limited by the size of the file, not by what a header says.
"""

from __future__ import annotations

import os
import struct
import zipfile
from typing import IO, Any

_DIRECTORY_BYTES = 4 << 10
"""The directory of the three members that a package has takes some 300 bytes; zipfile reads all of it into memory."""
_NEWEST_VERSION = zipfile.ZIP64_VERSION
"""The versions that zips of stored members need, in tenths: 2.0, or 4.5 for large ones."""
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_SIZES_BEHIND = 0x8
"""The flag of members whose sizes were not known when their header was written."""
_DESCRIPTOR_BYTES = (12, 16, 20, 24)
_METHODS = {8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCAL = struct.Struct("<4s5H3L2H")


def open_zip(stream: IO[bytes]) -> zipfile.ZipFile:
    """The zip in a seekable stream. Raises BadZipFile, saying what is wrong, before any member is read."""
    size_bytes = stream.seek(0, os.SEEK_END)
    directory_end = _check_end(stream, size_bytes)
    archive = zipfile.ZipFile(stream)
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    for entry in entries:
        _check_entry(entry)
    if entries and entries[0].header_offset != 0:
        raise zipfile.BadZipFile("there are bytes before its first member")
    ends = [entry.header_offset for entry in entries[1:]] + [archive.start_dir]
    for entry, end in zip(entries, ends, strict=True):
        _check_member(stream, entry, end)
    if not entries or archive.start_dir >= directory_end:
        raise zipfile.BadZipFile("it has no members")
    return archive


def _check_end(stream: IO[bytes], size_bytes: int) -> int:
    """The end of the directory, after checking that it is the end of the file and that the directory is short."""
    end_at = size_bytes - _END.size
    if end_at < 0:
        raise zipfile.BadZipFile("it is too short for a zip")
    signature, _disk, _first, _disk_entries, _total, directory_bytes, _offset, comment_bytes = _fields(
        stream, end_at, _END
    )
    if signature != b"PK\5\6" or comment_bytes:
        raise zipfile.BadZipFile("it is not a zip, is truncated or has bytes after its end")
    locator_at = end_at - _END64_LOCATOR.size
    if locator_at >= _END64.size and _fields(stream, locator_at, _END64_LOCATOR)[0] == b"PK\6\7":
        end_at = locator_at - _END64.size
        directory_bytes = _fields(stream, end_at, _END64)[8]
    if directory_bytes > _DIRECTORY_BYTES:
        raise zipfile.BadZipFile(f"it has a directory of {directory_bytes} bytes; expected at most {_DIRECTORY_BYTES}")
    return end_at


def _check_entry(entry: zipfile.ZipInfo) -> None:
    """Check the directory's entry of a member."""
    name = repr(entry.orig_filename[:80])
    if entry.orig_filename != entry.filename:
        raise zipfile.BadZipFile(f"its member {name} has a name that readers cut at different places")
    if entry.flag_bits & _ENCRYPTED:
        raise zipfile.BadZipFile(f"its member {name} is encrypted")
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        method = _METHODS.get(entry.compress_type, f"method {entry.compress_type}")
        raise zipfile.BadZipFile(f"its member {name} is compressed ({method}); expected it stored, as required")
    if entry.extract_version > _NEWEST_VERSION:
        raise zipfile.BadZipFile(f"its member {name} needs a reader of zip version {entry.extract_version / 10}")


def _check_member(stream: IO[bytes], entry: zipfile.ZipInfo, end: int) -> None:
    """Check that the header before a member agrees with the directory, and that its bytes end where the next start."""
    quoted = repr(entry.filename[:80])
    header = _fields(stream, entry.header_offset, _LOCAL)
    signature, _version, flags, method, _time, _date, checksum, packed_bytes, _plain, name_bytes, extra_bytes = header
    name = stream.read(name_bytes)
    encoded = entry.orig_filename.encode("utf-8" if flags & 0x800 else "cp437", "surrogateescape")
    later = bool(flags & _SIZES_BEHIND)
    agrees = (
        signature == b"PK\3\4"
        and flags == entry.flag_bits
        and method == entry.compress_type
        and name == encoded
        and (later or (checksum == entry.CRC and packed_bytes in {entry.file_size, 0xFFFFFFFF}))
    )
    if not agrees:
        raise zipfile.BadZipFile(f"the header of its member {quoted} does not match its directory")
    behind = end - (entry.header_offset + _LOCAL.size + name_bytes + extra_bytes + entry.file_size)
    if behind and not (later and behind in _DESCRIPTOR_BYTES):
        raise zipfile.BadZipFile(f"there are bytes between its member {quoted} and the next part, or they overlap")


def _fields(stream: IO[bytes], at: int, layout: struct.Struct) -> tuple[Any, ...]:
    stream.seek(at)
    return layout.unpack(stream.read(layout.size))
