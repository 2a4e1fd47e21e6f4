# SPDX-License-Identifier: BSD-3-Clause
"""Tiny ELF files written byte by byte, so that tests need no compiler."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BASE = 0x1000
_DT = {"NULL": 0, "NEEDED": 1, "STRTAB": 5, "STRSZ": 10, "SONAME": 14, "RPATH": 15}
_SHT_PROGBITS, _SHT_STRTAB, _SHT_DYNAMIC, _SHT_VERNEED = 1, 3, 6, 0x6FFFFFFE


def real_library() -> Path:
    """A library as linkers make them, which patchelf wants: a small one of this environment's own."""
    found = importlib.util.find_spec("msgspec._core")
    if found is None or found.origin is None:
        message = "msgspec's compiled part is not installed"
        raise RuntimeError(message)
    return Path(found.origin)


class _Strings:
    def __init__(self) -> None:
        self.content = b"\0"

    def add(self, text: str) -> int:
        offset = len(self.content)
        self.content += text.encode() + b"\0"
        return offset


def shared_library(
    *,
    soname: str | None = None,
    needed: Sequence[str] = (),
    rpath: str | None = None,
    versions: Sequence[str] = (),
    constants: bytes = b"",
) -> bytes:
    """A 64-bit shared object with nothing in it but a dynamic segment; ``versions`` are asked of libc.so.6.

    ``constants`` is what .rodata has.
    """
    strings = _Strings()
    tags = [(_DT["NEEDED"], strings.add(name)) for name in needed]
    tags += [(_DT["SONAME"], strings.add(soname))] if soname else []
    tags += [(_DT["RPATH"], strings.add(rpath))] if rpath else []
    verneed = _verneed(strings, versions)
    header_size, program_size = 64, 2 * 56
    strtab_at = header_size + program_size
    dynamic_at = -(-(strtab_at + len(strings.content)) // 8) * 8
    tags += [(_DT["STRTAB"], _BASE + strtab_at), (_DT["STRSZ"], len(strings.content)), (_DT["NULL"], 0)]
    dynamic = b"".join(struct.pack("<QQ", kind, value) for kind, value in tags)
    verneed_at = dynamic_at + len(dynamic)
    names = b"\0.dynstr\0.dynamic\0.gnu.version_r\0.shstrtab\0.rodata\0"
    constants_at = verneed_at + len(verneed)
    names_at = constants_at + len(constants)
    sections_at = -(-(names_at + len(names)) // 8) * 8
    size = sections_at + 6 * 64
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, header_size, sections_at, 0, 64, 56, 2, 64, 6, 4)
    programs = struct.pack("<IIQQQQQQ", 1, 4, 0, _BASE, _BASE, size, size, 0x1000)
    programs += struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, _BASE + dynamic_at, 0, len(dynamic), len(dynamic), 8)
    sections = bytes(64) + _section(1, _SHT_STRTAB, strtab_at, len(strings.content))
    sections += _section(9, _SHT_DYNAMIC, dynamic_at, len(dynamic), link=1, entry=16)
    sections += _section(18, _SHT_VERNEED, verneed_at, len(verneed), link=1, info=1 if versions else 0)
    sections += _section(33, _SHT_STRTAB, names_at, len(names))
    sections += _section(43, _SHT_PROGBITS, constants_at, len(constants))
    content = (header + programs + strings.content).ljust(dynamic_at, b"\0") + dynamic + verneed + constants + names
    return content.ljust(sections_at, b"\0") + sections


def _section(name: int, kind: int, offset: int, size: int, *, link: int = 0, info: int = 0, entry: int = 0) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 2, _BASE + offset, offset, size, link, info, 1, entry)


def _verneed(strings: _Strings, versions: Sequence[str]) -> bytes:
    if not versions:
        return b""
    content = struct.pack("<HHIII", 1, len(versions), strings.add("libc.so.6"), 16, 0)
    for number, version in enumerate(versions, start=1):
        following = 16 if number < len(versions) else 0
        content += struct.pack("<IHHII", 0, 0, number + 1, strings.add(version), following)
    return content
