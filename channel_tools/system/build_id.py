# SPDX-License-Identifier: BSD-3-Clause
"""The build ids that linkers write into programs and libraries."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING

from channel_tools.system.elf import ELF_MAGIC, elf_faults, open_elf

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_NOTE_HEADER_BYTES = 12
_CHUNK_BYTES = 1 << 20


def renew_build_id(stream: IO[bytes]) -> None:
    """Set an ELF file's build id to a hash of its other bytes; afterwards the stream is at its start.

    A file that is not a valid ELF file or has no build id is left unchanged. So are a file whose debug information is
    in another file, and that other file: debuggers match them by the build id and by a checksum.
    """
    stream.seek(0)
    if stream.read(len(ELF_MAGIC)) == ELF_MAGIC:
        for offset, size_bytes in _build_ids(stream):
            stream.seek(offset)
            stream.write(bytes(size_bytes))
            stream.seek(0)
            digest = hashlib.shake_256()  # of any length: linkers write 16, 20 or 32 bytes
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
            stream.seek(offset)
            stream.write(digest.digest(size_bytes))
    stream.seek(0)


def _build_ids(stream: IO[bytes]) -> list[tuple[int, int]]:
    """The positions and sizes of the file's build ids."""
    from elftools.elf.segments import NoteSegment  # noqa: PLC0415 - as in open_elf

    spans = set()
    try:
        elf = open_elf(stream)
        if _is_split(elf):
            return []
        for segment in elf.iter_segments("PT_NOTE"):
            for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    spans.add((note["n_offset"] + _NOTE_HEADER_BYTES + len(b"GNU\0"), note["n_descsz"]))
    except elf_faults():
        return []
    return sorted(spans)


def _is_split(elf: ELFFile) -> bool:
    """Whether this is one of two files into which code and debug information were split (objcopy --only-keep-debug)."""
    code = elf.get_section_by_name(".text")
    return elf.get_section_by_name(".gnu_debuglink") is not None or (
        code is not None and code["sh_type"] == "SHT_NOBITS"
    )
