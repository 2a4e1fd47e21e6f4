# SPDX-License-Identifier: BSD-3-Clause
"""Folders that upstream compiled into its programs, made folders of the prefix.

A folder of the machine that a library was compiled for, ``/usr/lib/ssl`` or ``/opt/openmpi``, is not the prefix, and
whoever can write there decides what a process loads. conda's clients write the prefix over a placeholder in a binary,
which has to be longer than any prefix, so it does not fit where the short name was: the string is written anew at the
end of the dynamic strings, where patchelf makes room, and what refers to the old one is led to the new one. That is an
address in a relocation, or one that machine code calculates. The old string becomes one that names nothing, and that
is all that can be done on aarch64, whose code calculates an address in two places that may share one of them.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.conda.metadata import BINARY_PLACEHOLDER
from channel_tools.foundation.repairs.elf import dynamic_elf_files, edit_elf
from channel_tools.foundation.repairs.layout import relative_to_tree, step_error
from channel_tools.system.elf import open_elf, read_elf_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 3
"""Raised with each change of what a step here makes of a tree."""

FOLDERS: Mapping[str, Mapping[str, str]] = {
    "cmake": {"/usr/local/ssl": "ssl"},
    "cryptography": {"/opt/pyca/cryptography/openssl": "ssl"},
    # gRPC looks for certificates in this order: its own, Debian's, and last FreeBSD's
    "libgrpc": {
        "/usr/share/grpc": "share/grpc",
        "/etc/ssl/certs/ca-certificates.crt": "ssl/cacert.pem",
        "/usr/local/share/certs": "ssl/certs",
    },
    "libnl": {
        "/etc/libnl": "etc/libnl",
        "/usr/lib/tc": "lib/tc",
        "/usr/lib64/tc": "lib/tc",
        "/usr/local/lib/tc": "lib/tc",
    },
    "make": {
        "/usr/gnu/include": "include",
        "/usr/include": "include",
        "/usr/lib/{multiarch}": "lib",
        "/usr/local/include": "include",
        "/usr/local/lib": "lib",
    },
    "mpich": {"/usr/etc": "etc"},
    "mpich-abi": {"/opt/mpich": ""},
    "openmpi": {"/opt/openmpi": ""},
    "openssl": {"/usr/lib/ssl": "ssl", "/usr/lib/{multiarch}": "lib"},
    "rdma-core": {"/etc/libibverbs.d": "etc/libibverbs.d"},
    "ucx": {"/etc/ucx": "etc/ucx"},
}
"""By package: each folder (or file) that is compiled in, and that of the prefix that takes its place."""

_ROOM = "@"
_RELATIVE = {8, 1027}
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE: the addend is an address of the file itself."""
_LEA = re.compile(rb"(?s)(?=[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4}))")
"""``lea register, [rip + distance]``, the way in which position-independent code names a string."""
_NOWHERE = b"/proc/0"
"""No process has the number 0, and nobody can make a folder there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Segment:
    offset: int
    address: int
    size: int
    is_code: bool


class _Image:
    """The bytes of an ELF file, with the addresses that they are loaded at."""

    def __init__(self, path: Path) -> None:
        from elftools.elf.sections import SymbolTableSection  # noqa: PLC0415 - as in open_elf

        with path.open("rb") as stream:
            elf = open_elf(stream)
            self.is_arm = elf["e_machine"] == "EM_AARCH64"
            self.is_fixed = elf["e_type"] == "ET_EXEC" and not self.is_arm
            self.segments = [
                _Segment(
                    offset=segment["p_offset"],
                    address=segment["p_vaddr"],
                    size=segment["p_filesz"],
                    is_code=bool(segment["p_flags"] & 1),
                )
                for segment in elf.iter_segments("PT_LOAD")
            ]
            self.exported = {
                symbol["st_value"]
                for section in elf.iter_sections("SHT_DYNSYM")
                if isinstance(section, SymbolTableSection)
                for symbol in section.iter_symbols()
            }
            self.relocations = [
                (section["sh_offset"], section["sh_size"])
                for section in elf.iter_sections("SHT_RELA")
                if section["sh_flags"] & 2
            ]
        self.content = bytearray(path.read_bytes())

    def address_of(self, offset: int) -> int | None:
        """The address of a byte of the file; None if it is not loaded."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                return segment.address + offset - segment.offset
        return None

    def redirect(self, addresses: Mapping[int, int]) -> set[int]:
        """Lead what refers to each address to another one; the addresses that something refers to are returned."""
        found = set(self._relocations(addresses))
        for segment in self.segments:
            if self.is_fixed:
                found |= set(self._fixed(segment, addresses))
            if segment.is_code and not self.is_arm:
                found |= set(self._code(segment, addresses))
        return found

    def _fixed(self, segment: _Segment, addresses: Mapping[int, int]) -> Iterator[int]:
        """What has an address as a number, ``mov register, number`` or a pointer: in a program with a fixed place."""
        for old, new in addresses.items():
            number, size = (
                (rb"[\xb8-\xbf]" + re.escape(struct.pack("<I", old)), 4)
                if segment.is_code
                else (re.escape(struct.pack("<Q", old)), 8)
            )
            for match in re.finditer(
                b"(?s)" + number, bytes(self.content[segment.offset : segment.offset + segment.size])
            ):
                end = segment.offset + match.end()
                self.content[end - size : end] = new.to_bytes(size, "little")
                yield old

    def _relocations(self, addresses: Mapping[int, int]) -> Iterator[int]:
        for start, size in self.relocations:
            for offset in range(start, start + size, 24):
                _place, kind, addend = struct.unpack_from("<QQq", self.content, offset)
                if kind in _RELATIVE and addend in addresses:
                    struct.pack_into("<q", self.content, offset + 16, addresses[addend])
                    yield addend

    def _code(self, segment: _Segment, addresses: Mapping[int, int]) -> Iterator[int]:
        code = bytes(self.content[segment.offset : segment.offset + segment.size])
        for match in _LEA.finditer(code):
            after = segment.address + match.end(1)
            address = after + struct.unpack("<i", match[1])[0]
            if address in addresses:
                struct.pack_into("<i", self.content, segment.offset + match.start(1), addresses[address] - after)
                yield address


def relocate_folders(tree: Path, context: RepairContext) -> None:
    """Have the package's programs and libraries look below the prefix for the folders that are compiled in.

    Raises FoundationError for a folder that no file names, and for a string of it that nothing is seen to refer to.
    The last step that may change ELF files: patchelf would move the strings.
    """
    folders = {
        old.format(multiarch=context.multiarch).encode(): f"{BINARY_PLACEHOLDER}/{new}".rstrip("/").encode()
        for old, new in FOLDERS[context.entry.name].items()
    }
    unused = set(folders)
    for path, _info in list(dynamic_elf_files(tree)):
        named = set(_naming(folders).findall(path.read_bytes()))
        if named:
            unused -= named
            _relocate(path, folders, str(relative_to_tree(path, tree)), context)
    if unused:
        names = ", ".join(sorted(old.decode() for old in unused))
        raise step_error(context, f"no program or library names {names}; the row of FOLDERS is no longer needed")


def _naming(folders: Iterable[bytes]) -> re.Pattern[bytes]:
    """What finds the folders in strings, but not as the beginning of a longer name or the end of a longer path."""
    names = b"|".join(re.escape(folder) for folder in folders)
    return re.compile(rb"(?<![\w/.+-])(?:" + names + rb")(?![\w.+-])")


def _relocate(path: Path, folders: Mapping[bytes, bytes], where: str, context: RepairContext) -> None:
    naming = _naming(folders)
    strings = [text for _start, text in _strings(path.read_bytes(), naming)]
    copies = [naming.sub(lambda match: folders[match[0]], text) for text in strings]
    room = sum(len(copy) + 1 for copy in copies)
    rpath = ":".join(read_elf_file(path).rpaths) or "$ORIGIN"
    edit_elf(["--force-rpath", "--set-rpath", rpath + _ROOM * room], [path])
    image = _Image(path)
    end = image.content.find(rpath.encode() + _ROOM.encode() * room) + len(rpath)
    image.content[end : end + room] = bytes(room)
    addresses: dict[int, int] = {}
    needed: dict[int, bytes] = {}
    hidden: list[tuple[int, int]] = []
    for start, text in _strings(bytes(image.content), naming):
        end += 1
        copy = naming.sub(lambda match: folders[match[0]], text)
        image.content[end : end + len(copy)] = copy
        grown = 0
        for match in naming.finditer(text):
            # linkers let a string be the end of another: what refers to either is led to the same place of the copy
            for place, shift in ((0, 0), (match.start(), grown)):
                old, new = image.address_of(start + place), image.address_of(end + place + shift)
                if old is not None and new is not None:
                    addresses[old] = new
            grown += len(folders[match[0]]) - len(match[0])
            hidden.append((start + match.start(), len(match[0])))
            address = image.address_of(start)
            if match.start() == 0 and address is not None and address not in image.exported:
                needed[address] = text
        end += len(copy)
    redirected = image.redirect(addresses)
    missed = sorted(text.decode() for address, text in needed.items() if address not in redirected)
    if missed and not image.is_arm:
        raise step_error(context, f"nothing in {where} is seen to refer to {', '.join(missed)}")
    for offset, length in hidden:
        image.content[offset : offset + length] = _NOWHERE.ljust(length, b"/")
    path.write_bytes(image.content)


def _strings(content: bytes, naming: re.Pattern[bytes]) -> list[tuple[int, bytes]]:
    """The strings of a binary in which one of the folders is named, each with its offset."""
    starts = sorted({content.rfind(b"\0", 0, match.start()) + 1 for match in naming.finditer(content)})
    return [(start, content[start : content.index(b"\0", start)]) for start in starts]


def place_openssl_settings(tree: Path, context: RepairContext) -> None:
    """Put openssl's settings beside the certificates, where conda-forge's package has them, in place of the host's."""
    settings = tree / "etc" / "ssl" / "openssl.cnf"
    if not settings.is_file():
        raise step_error(context, "expected etc/ssl/openssl.cnf")
    (tree / "ssl").mkdir()
    settings.rename(tree / "ssl" / settings.name)


STEPS: dict[str, Repair] = {
    "place_openssl_settings": place_openssl_settings,
    "relocate_folders": relocate_folders,
}
