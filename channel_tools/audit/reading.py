# SPDX-License-Identifier: BSD-3-Clause
"""Reading one file of a package or a prefix: everything the rules want to know, nothing judged.

Files are held in memory while they are read, large ones in a temporary file.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from channel_tools.audit.archives import ARCHIVE_MAGIC, THIN_MAGIC, read_archive
from channel_tools.audit.facts import SYSROOT, ArchiveFacts, ElfFacts, FileFacts, Instruction, Place, Placeholder
from channel_tools.audit.instructions import instructions_beyond
from channel_tools.audit.processor import level_name
from channel_tools.elf import ELF_FAULTS, ELF_MAGIC, read_elf, search_folders
from channel_tools.errors import IntegrityError
from channel_tools.mentions import find_paths, find_texts
from channel_tools.packages.texts import host_paths, is_program, locates_itself

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MEMORY_BYTES = 16 << 20
_PROBE_BYTES = 1 << 13
_TEXT_BYTES = 4 << 20
_COUNT_BYTES = 1 << 20
_SHOWN_BYTES = 160
_BUILD_FOLDERS = (b"/bld/rattler-build_", b"/conda-bld/", b"/_build_env/", b"/feedstock_root/")
"""What the build engines call their folders, wherever they lie."""
_PREFIX_MARK = b"_placehold_placehold"
_DELIMITERS = frozenset(b"\"'<>;,|()[]{}` =")
_NT_GNU_PROPERTY = "NT_GNU_PROPERTY_TYPE_0"
_ISA_NEEDED = 0xC0008002
_PRINTABLE = range(0x21, 0x7F)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """What to look for: folders of the build machine, prefixes that may be named, instructions beyond a level.

    ``own_paths`` may be mentioned although they lie below a build path. Large programs are decoded by ``processes``.
    """

    build_paths: tuple[str, ...] = ()
    own_paths: tuple[str, ...] = ()
    level: int = 1
    reads_code: bool = True
    processes: int = 1

    def read(
        self, name: str, stream: IO[bytes], *, mode: int, size_bytes: int, placeholder: Placeholder | None
    ) -> FileFacts:
        """Read one regular file to its end."""
        with _held(stream, size_bytes) as (held, path):
            head = held.read(_PROBE_BYTES)
            is_text = b"\0" not in head
            replaced = (placeholder.text.encode(),) if placeholder else ()
            return FileFacts(
                path=name,
                kind="file",
                mode=mode,
                size_bytes=size_bytes,
                is_text=is_text,
                placeholder=placeholder,
                shebang=_shebang(name, head, executable=bool(mode & 0o111)),
                build_paths=tuple(self._build_places(held, replaced, is_text=is_text)),
                strays=tuple(_places(held, [_PREFIX_MARK], replaced, is_text=is_text, whole=False)),
                host_paths=tuple(_host_places(name, held, replaced)) if is_text and size_bytes <= _TEXT_BYTES else (),
                elf=self._elf(name, held, path) if head.startswith(ELF_MAGIC) else None,
                archive=self._archive(name, held, head),
            )

    def _build_places(self, held: BinaryIO, replaced: Sequence[bytes], *, is_text: bool) -> Iterator[Place]:
        allowed = (*replaced, *(path.encode() for path in self.own_paths))
        paths = [path.encode() for path in self.build_paths]
        found = list(_places(held, paths, allowed, is_text=is_text, whole=True))
        yield from found
        for place in _places(held, _BUILD_FOLDERS, allowed, is_text=is_text, whole=False):
            if not any(known.offset <= place.offset < known.offset + len(known.text) for known in found):
                yield place

    def _elf(self, name: str, held: BinaryIO, path: Path | None) -> ElfFacts:
        held.seek(0)
        try:
            info = read_elf(held, name=name)
            elf = ELFFile(held)
            machine = str(elf["e_machine"])
            isa = _isa_needed(elf)
            is_read = machine == "EM_X86_64" and self.reads_code and SYSROOT not in name
            instructions = self._instructions(held, elf, path) if is_read else ()
        except (IntegrityError, *ELF_FAULTS) as err:
            return _damaged(err)
        return ElfFacts(
            machine=machine,
            needed=info.needed,
            rpaths=info.rpaths,
            folders=search_folders(name, info.rpaths),
            symbol_versions=info.symbol_versions,
            isa_needed=isa,
            instructions=instructions,
            is_dynamic=info.is_dynamic,
        )

    def _archive(self, name: str, held: BinaryIO, head: bytes) -> ArchiveFacts | None:
        if not head.startswith((ARCHIVE_MAGIC, THIN_MAGIC)) or SYSROOT in name:
            return None
        return read_archive(held, level=self.level, reads_code=self.reads_code)

    def _instructions(self, held: BinaryIO, elf: ELFFile, path: Path | None) -> tuple[Instruction, ...]:
        return instructions_beyond(held, elf, level=self.level, path=path, processes=self.processes)


def _damaged(err: Exception) -> ElfFacts:
    words = str(err) or type(err).__name__
    return ElfFacts(
        machine="",
        needed=(),
        rpaths=(),
        folders=(),
        symbol_versions=frozenset(),
        damage=words.partition(": ")[2] or words,
        is_dynamic=False,
    )


@contextlib.contextmanager
def _held(stream: IO[bytes], size_bytes: int) -> Iterator[tuple[BinaryIO, Path | None]]:
    """A seekable copy of a stream, and where it lies when it is on disk."""
    if isinstance(stream, io.BufferedReader) and stream.seekable() and isinstance(stream.name, str | Path):
        yield stream, Path(stream.name)
    elif size_bytes <= _MEMORY_BYTES:
        yield io.BytesIO(stream.read()), None
    else:
        with tempfile.NamedTemporaryFile(prefix="channel_tools-audit-") as file:
            shutil.copyfileobj(stream, file, _COUNT_BYTES)
            file.flush()
            file.seek(0)
            yield cast("BinaryIO", file), Path(file.name)


def _shebang(name: str, head: bytes, *, executable: bool) -> str:
    if not head.startswith(b"#!") or not is_program(name, executable=executable):
        return ""
    return head[2:].partition(b"\n")[0].decode(errors="replace").strip()


def _places(
    held: BinaryIO, needles: Sequence[bytes], allowed: Sequence[bytes], *, is_text: bool, whole: bool
) -> Iterator[Place]:
    """The first place of each needle, with the text around it."""
    held.seek(0)
    for mention in list((find_paths if whole else find_texts)(held, needles, allowed=allowed)):
        yield place_at(held, mention.offset, len(mention.text), is_text=is_text)


def place_at(held: BinaryIO, offset: int, length: int, *, is_text: bool) -> Place:
    """The place of something found at an offset: the path or word around it, and the line in a text."""
    before = min(offset, _SHOWN_BYTES)
    held.seek(offset - before)
    around = held.read(before + length + _SHOWN_BYTES)
    start, end = before, before + length
    while start > 0 and _is_of_word(around[start - 1]):
        start -= 1
    while end < len(around) and _is_of_word(around[end]):
        end += 1
    line = _line_of(held, offset) if is_text else None
    return Place(text=around[start:end].decode(errors="replace"), offset=offset, line=line)


def _is_of_word(byte: int) -> bool:
    return byte in _PRINTABLE and byte not in _DELIMITERS


def _line_of(held: BinaryIO, offset: int) -> int:
    held.seek(0)
    line, left = 1, offset
    while left > 0 and (chunk := held.read(min(left, _COUNT_BYTES))):
        line += chunk.count(b"\n")
        left -= len(chunk)
    return line


def _host_places(name: str, held: BinaryIO, replaced: Sequence[bytes]) -> Iterator[Place]:
    if not locates_itself(name):
        return
    held.seek(0)
    lines = held.read().decode(errors="replace").splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    skipped = 1 if lines and lines[0].startswith("#!") else 0
    for number, found in host_paths(_without(lines, replaced)):
        if number > skipped:
            yield Place(text=found, offset=starts[number - 1], line=number)
    for number, line in enumerate(lines, start=1):
        if number > skipped and any(text.decode() in line for text in replaced):
            yield Place(text="the installation prefix, written in full", offset=starts[number - 1], line=number)


def _without(lines: Sequence[str], replaced: Sequence[bytes]) -> list[str]:
    """The lines with a name in place of what installation replaces, which may itself look like a path of a host."""
    for text in replaced:
        lines = [line.replace(text.decode(), "${PREFIX}") for line in lines]
    return list(lines)


def _isa_needed(elf: ELFFile) -> str:
    """The highest x86-64 level that a file's property note asks the loader for."""
    section = elf.get_section_by_name(".note.gnu.property")
    if not isinstance(section, NoteSection) or elf["e_machine"] != "EM_X86_64":
        return ""
    for note in section.iter_notes():
        if note["n_type"] != _NT_GNU_PROPERTY:
            continue
        for item in note["n_desc"]:
            bits = item.pr_data if item.pr_type in {_ISA_NEEDED, "GNU_PROPERTY_X86_ISA_1_NEEDED"} else 0
            if isinstance(bits, int) and bits:
                return level_name(bits.bit_length())
    return ""
