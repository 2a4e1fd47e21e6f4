# SPDX-License-Identifier: BSD-3-Clause
"""Static archives: what the object files in them ask of the processor.

The ar format is read here: python-debian's reader knows the short names of Debian packages alone, and cuts GNU's long
ones off. Members are read one at a time; what is no ELF file (an index, LLVM's or Rust's own) is passed over.
"""

from __future__ import annotations

import dataclasses
import io
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from elftools.elf.elffile import ELFFile

from channel_tools.audit.facts import ArchiveFacts, Instruction
from channel_tools.audit.instructions import instructions_beyond
from channel_tools.elf import ELF_FAULTS, ELF_MAGIC
from channel_tools.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVE_MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER_BYTES = 60
_HEADER_END = b"`\n"
_INDEXES = frozenset({b"/", b"/SYM64/", b"__.SYMDEF", b"__.SYMDEF SORTED"})
_LONG_NAMES = b"//"
_BSD_NAME = b"#1/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A file of an archive: where its content lies."""

    name: str
    offset: int
    size_bytes: int


def archive_members(stream: BinaryIO) -> Iterator[Member]:
    """The files of an archive, in its order, without its index. Raises IntegrityError where it is damaged."""
    end = stream.seek(0, os.SEEK_END)
    offset = len(ARCHIVE_MAGIC)
    long_names = b""
    while offset < end:
        name, size = _read_header(stream, offset)
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
        yield Member(name=name.removesuffix(b"/").decode(errors="replace"), offset=start, size_bytes=size)


def read_archive(stream: BinaryIO, *, level: int, reads_code: bool) -> ArchiveFacts:
    """What the rules want to know of an archive; damage ends the reading and becomes a fact."""
    members: list[tuple[str, tuple[Instruction, ...]]] = []
    machines: dict[str, str] = {}
    stream.seek(0)
    if stream.read(len(THIN_MAGIC)) == THIN_MAGIC:
        return ArchiveFacts(damage="it is a thin archive, whose files lie elsewhere")
    damage = ""
    try:
        for member in archive_members(stream):
            stream.seek(member.offset)
            content = stream.read(member.size_bytes)
            if not content.startswith(ELF_MAGIC):
                continue
            machine, instructions = _read_object(content, member, level=level, reads_code=reads_code)
            machines.setdefault(machine, member.name)
            if instructions:
                members.append((member.name, instructions))
    except IntegrityError as err:
        damage = err.message
    return ArchiveFacts(members=tuple(members), machines=machines, damage=damage)


def _read_object(
    content: bytes, member: Member, *, level: int, reads_code: bool
) -> tuple[str, tuple[Instruction, ...]]:
    """The machine of an object file, and its instructions beyond the level by their offset in the archive."""
    held = io.BytesIO(content)
    try:
        elf = ELFFile(held)
        machine = str(elf["e_machine"])
        is_read = reads_code and machine == "EM_X86_64"
        found = instructions_beyond(held, elf, level=level) if is_read else ()
    except ELF_FAULTS as err:
        raise IntegrityError(f"{member.name}: {str(err) or type(err).__name__}") from None
    return machine, tuple(dataclasses.replace(one, offset=member.offset + one.offset) for one in found)


def _read_header(stream: BinaryIO, offset: int) -> tuple[bytes, int]:
    """Name and size of the member whose header lies at ``offset``."""
    stream.seek(offset)
    header = stream.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.endswith(_HEADER_END):
        raise IntegrityError(f"there is no header of a member at offset {offset:#x}")
    return header[:16].rstrip(b" "), _number(header[48:58].strip(), offset)


def _number(text: bytes, offset: int) -> int:
    if not text.isdigit():
        raise IntegrityError(f"the header at offset {offset:#x} has {text!r} where a number belongs")
    return int(text)
