# SPDX-License-Identifier: BSD-3-Clause
"""Reads from one file of a package or a prefix everything that the rules need to know, without applying them.

Files are kept in memory while they are read, large ones in a temporary file. Only text files that control builds and
programs (.pc, CMake packages, programs, activation scripts) are searched for host paths. Text that merely mentions
paths, like documentation or a module whose purpose is to probe hosts, is not.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from channel_tools.audit.host_paths import elf_paths
from channel_tools.audit.instructions import THIN_MAGIC, instructions_beyond, level_name, read_archive
from channel_tools.audit.model import SYSROOT, ArchiveFacts, ElfFacts, FileFacts, Instruction, Occurrence, Placeholder
from channel_tools.system.archives import AR_MAGIC
from channel_tools.system.byte_search import WIDE_ENCODINGS, find_paths, find_texts
from channel_tools.system.elf import ELF_MAGIC, elf_faults, open_elf, read_elf, search_folders
from channel_tools.system.errors import IntegrityError
from channel_tools.system.work_folder import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from elftools.elf.elffile import ELFFile

_MEMORY_BYTES = 16 << 20
_PROBE_BYTES = 1 << 13
_TEXT_BYTES = 4 << 20
_COUNT_BYTES = 1 << 20
_SHOWN_BYTES = 160
# in parts, so that the package of this program, which has this file, does not have them
_BUILD_FOLDERS = tuple(
    b"/" + name for name in (b"bld/rattler-build_", b"conda-bld/", b"_build_env/", b"feedstock_root/")
)
"""The names that build engines give to their folders."""
_PREFIX_MARK = 2 * b"_placehold"
_DELIMITERS = frozenset(b"\"'<>;,|()[]{}` =")
_NT_GNU_PROPERTY = "NT_GNU_PROPERTY_TYPE_0"
_ISA_NEEDED = 0xC0008002
_PRINTABLE = range(0x21, 0x7F)
_MARKED = (".pc", ".cmake")
_STEERING = ("etc/conda/",)
_PROGRAMS = ("bin/", "sbin/", "libexec/")
# CMake's own modules and Find modules search a host for what a site provides; that is their purpose
_PROBES = (
    "*/share/cmake*/Modules/*",
    "share/cmake*/Modules/*",
    "*/Find*.cmake",
    "*/FindCUDA/*",
    "*/Modules_CUDA_fix/*",
)
_SHEBANG = re.compile(r"#!\s*(\S+)")
SHELLS = frozenset({"/bin/sh", "/bin/bash", "/usr/bin/env"})
_PREFIX_SHEBANG = re.compile(r"/opt/anaconda1anaconda2anaconda3\S*/bin/[\w.+-]+$")
_HOST_PATH = re.compile(r"(?:(?<=-[IL])|(?<![\w.}$/%]))/(?:usr|build|home|root|tmp|var/tmp|opt)/[^\s\"'();:,<>\\]*")
# what prefix-map options write in place of build folders, and paths of programs that people pass
_HARMLESS = re.compile(r"/usr/local/src/conda|/usr/bin/env$|/opt/anaconda1anaconda2")
_COMMENT = re.compile(r"^\s*(?:#|//|URL:|Description:)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Reads files, with what to look for: folders of the build machine, prefixes that may be named, instructions.

    ``own_paths`` may be named although they are below a build path. Large programs are decoded by ``processes``.
    ``reads_leftovers``: look for what a foundation must not keep from its sources: host paths in files that control
    builds or programs, and build paths inside longer names too.
    """

    build_paths: tuple[str, ...] = ()
    own_paths: tuple[str, ...] = ()
    level: int = 1
    reads_code: bool = True
    reads_leftovers: bool = False
    processes: int = 1

    def read(
        self, name: str, stream: IO[bytes], *, mode: int, size_bytes: int, placeholder: Placeholder | None
    ) -> FileFacts:
        """Read one regular file to its end."""
        with _seekable(stream, size_bytes) as (content, path):
            head = content.read(_PROBE_BYTES)
            is_text = b"\0" not in head
            is_small_text = is_text and size_bytes <= _TEXT_BYTES
            replaced = (placeholder.text.encode(),) if placeholder else ()
            return FileFacts(
                path=name,
                kind="file",
                mode=mode,
                size_bytes=size_bytes,
                is_text=is_text,
                placeholder=placeholder,
                shebang=_shebang(name, head, executable=bool(mode & 0o111)),
                build_paths=tuple(self._build_occurrences(content, replaced, is_text=is_text)),
                strays=(
                    *_occurrences(content, [_PREFIX_MARK], replaced, is_text=is_text, whole_paths=False),
                    *(() if is_text else _wide_occurrences(content, [_PREFIX_MARK], replaced, whole_paths=False)),
                ),
                host_paths=tuple(_host_occurrences(name, content, replaced)) if is_small_text else (),
                leftovers=tuple(self._leftovers(name, content, mode=mode, size_bytes=size_bytes)),
                elf=self._elf(name, content, path, placeholder) if head.startswith(ELF_MAGIC) else None,
                archive=self._archive(name, content, head),
            )

    def _build_occurrences(
        self, content: BinaryIO, replaced: Sequence[bytes], *, is_text: bool
    ) -> Iterator[Occurrence]:
        allowed = (*replaced, *(path.encode() for path in self.own_paths))
        paths = [path.encode() for path in self.build_paths]
        matches = list(_occurrences(content, paths, allowed, is_text=is_text, whole_paths=not self.reads_leftovers))
        yield from matches
        for occurrence in _occurrences(content, _BUILD_FOLDERS, allowed, is_text=is_text, whole_paths=False):
            if not any(known.offset <= occurrence.offset < known.offset + len(known.text) for known in matches):
                yield occurrence
        if is_text:
            return
        wide = list(_wide_occurrences(content, paths, allowed, whole_paths=not self.reads_leftovers))
        yield from wide or _wide_occurrences(content, _BUILD_FOLDERS, allowed, whole_paths=False)

    def _leftovers(self, name: str, content: BinaryIO, *, mode: int, size_bytes: int) -> Iterator[Occurrence]:
        if not self.reads_leftovers or size_bytes > _TEXT_BYTES:
            return
        content.seek(0)
        head = content.read(_PROBE_BYTES)
        if steers(name, head, executable=bool(mode & 0o100)):
            text = (head + content.read()).decode(errors="replace")
            yield from (Occurrence(text=leftover, offset=0, line=line) for line, leftover in leftover_paths(name, text))

    def _elf(self, name: str, content: BinaryIO, path: Path | None, placeholder: Placeholder | None) -> ElfFacts:
        content.seek(0)
        try:
            info = read_elf(content, name=name)
            elf = open_elf(content)
            machine = str(elf["e_machine"])
            isa = _isa_needed(elf)
            own = (*self.own_paths, *((placeholder.text,) if placeholder else ()))
            paths = () if SYSROOT in name else tuple(elf_paths(content, elf, own=own))
            is_read = machine == "EM_X86_64" and self.reads_code and SYSROOT not in name
            instructions: tuple[Instruction, ...] = ()
            if is_read:
                instructions = instructions_beyond(content, elf, level=self.level, path=path, processes=self.processes)
        except IntegrityError as err:
            return _damaged(err)
        except elf_faults() as err:
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
            paths=paths,
        )

    def _archive(self, name: str, content: BinaryIO, head: bytes) -> ArchiveFacts | None:
        if not head.startswith((AR_MAGIC, THIN_MAGIC)) or SYSROOT in name:
            return None
        return read_archive(content, level=self.level, reads_code=self.reads_code)


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
def _seekable(stream: IO[bytes], size_bytes: int) -> Iterator[tuple[BinaryIO, Path | None]]:
    """A seekable copy of a stream, and its path if it is on disk."""
    if isinstance(stream, io.BufferedReader) and stream.seekable() and isinstance(stream.name, str | Path):
        yield stream, Path(stream.name)
    elif size_bytes <= _MEMORY_BYTES:
        yield io.BytesIO(stream.read()), None
    else:
        with temporary_folder() as folder, (folder / "content").open("w+b") as file:
            shutil.copyfileobj(stream, file, _COUNT_BYTES)
            file.flush()
            file.seek(0)
            yield file, folder / "content"


def _shebang(name: str, head: bytes, *, executable: bool) -> str:
    if not head.startswith(b"#!") or not is_program(name, executable=executable):
        return ""
    return head[2:].partition(b"\n")[0].decode(errors="replace").strip()


def _occurrences(
    content: BinaryIO, needles: Sequence[bytes], allowed: Sequence[bytes], *, is_text: bool, whole_paths: bool
) -> Iterator[Occurrence]:
    """The first occurrence of each needle, with the text around it."""
    content.seek(0)
    for match in list((find_paths if whole_paths else find_texts)(content, needles, allowed=allowed)):
        yield occurrence_at(content, match.offset, len(match.text), is_text=is_text)


def _wide_occurrences(
    content: BinaryIO, needles: Sequence[bytes], allowed: Sequence[bytes], *, whole_paths: bool
) -> Iterator[Occurrence]:
    """The first occurrence of each needle in strings of wide characters."""
    for encoding in WIDE_ENCODINGS:
        texts = {needle.decode().encode(encoding): needle.decode() for needle in needles}
        excepted = [text.decode().encode(encoding) for text in allowed]
        content.seek(0)
        matches = (
            find_paths(content, list(texts), allowed=excepted, encoding=encoding)
            if whole_paths
            else find_texts(content, list(texts), allowed=excepted)
        )
        for match in list(matches):
            yield Occurrence(text=f"{texts[match.text]} in {encoding[:6].upper()}", offset=match.offset)


def occurrence_at(content: BinaryIO, offset: int, length: int, *, is_text: bool) -> Occurrence:
    """Describe an occurrence at an offset: the path or word around it, and the line in a text file."""
    before = min(offset, _SHOWN_BYTES)
    content.seek(offset - before)
    around = content.read(before + length + _SHOWN_BYTES)
    start, end = before, before + length
    while start > 0 and _is_of_word(around[start - 1]):
        start -= 1
    while end < len(around) and _is_of_word(around[end]):
        end += 1
    line = _line_of(content, offset) if is_text else None
    return Occurrence(text=around[start:end].decode(errors="replace"), offset=offset, line=line)


def _is_of_word(byte: int) -> bool:
    return byte in _PRINTABLE and byte not in _DELIMITERS


def _line_of(content: BinaryIO, offset: int) -> int:
    content.seek(0)
    line, remaining = 1, offset
    while remaining > 0 and (chunk := content.read(min(remaining, _COUNT_BYTES))):
        line += chunk.count(b"\n")
        remaining -= len(chunk)
    return line


def _host_occurrences(name: str, content: BinaryIO, replaced: Sequence[bytes]) -> Iterator[Occurrence]:
    if not locates_itself(name):
        return
    content.seek(0)
    lines = content.read().decode(errors="replace").splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    skipped = 1 if lines and lines[0].startswith("#!") else 0
    for number, host_path in host_paths(_without(lines, replaced)):
        if number > skipped:
            yield Occurrence(text=host_path, offset=starts[number - 1], line=number)
    for number, line in enumerate(lines, start=1):
        if number > skipped and any(text.decode() in line for text in replaced):
            yield Occurrence(text="the installation prefix, written in full", offset=starts[number - 1], line=number)


def _without(lines: Sequence[str], replaced: Sequence[bytes]) -> list[str]:
    """The lines with the strings that installation replaces taken out, since these may look like host paths."""
    for text in replaced:
        lines = [line.replace(text.decode(), "${PREFIX}") for line in lines]
    return list(lines)


def _isa_needed(elf: ELFFile) -> str:
    """The highest x86-64 level that a file's property note requires."""
    from elftools.elf.sections import NoteSection  # noqa: PLC0415 - as in open_elf

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


def steers(name: str, head: bytes, *, executable: bool) -> bool:
    """Whether a file of a package controls builds or programs, so that its text is searched."""
    is_script = head.startswith(b"#!") and is_program(name, executable=executable)
    if not (is_script or name.endswith(_MARKED) or name.startswith(_STEERING)):
        return False
    return b"\0" not in head[:4096] and not any(fnmatch.fnmatch(name, probe) for probe in _PROBES)


def leftover_paths(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and host paths in the text of a file that ``steers``; comments are ignored, the shebang is not."""
    lines = text.splitlines()
    if lines and (shebang := _SHEBANG.match(lines[0])) and not _is_good_interpreter(shebang[1]):
        yield 1, f"the interpreter {shebang[1]}"
    if not (name.endswith(_MARKED) or name.startswith((*_STEERING, *_PROGRAMS))):
        return
    yield from host_paths(lines)


def host_paths(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Line numbers and absolute host paths in lines, outside comments."""
    for number, line in enumerate(lines, start=1):
        if _COMMENT.match(line):
            continue
        for host_path in _HOST_PATH.findall(line):
            if not _HARMLESS.match(host_path):
                yield number, host_path


def locates_itself(name: str) -> bool:
    """Whether a file helps others find libraries (.pc, CMake packages, -config programs)."""
    if name.endswith(_MARKED):
        return not any(fnmatch.fnmatch(name, probe) for probe in _PROBES)
    return name.startswith(_PROGRAMS) and name.endswith("-config")


def is_program(name: str, *, executable: bool) -> bool:
    """Whether a file that starts with ``#!`` is run by its name."""
    return executable or name.startswith(_PROGRAMS)


def _is_good_interpreter(path: str) -> bool:
    return path in SHELLS or _PREFIX_SHEBANG.match(path) is not None
