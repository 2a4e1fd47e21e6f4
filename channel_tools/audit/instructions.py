# SPDX-License-Identifier: BSD-3-Clause
"""Finds machine instructions that the required processor may lack, by decoding every function.

The functions are those in the unwind table, because there can be tables of numbers between hand-written functions. If
there is no such table, all executable sections are decoded. Object files have none yet, but name their functions as
symbols; all their sections start at address 0, so offsets in the file are used as addresses. Large files are decoded in
parallel, split between functions. In a static archive, every member that is an ELF file is read.

The levels of x86-64 processors are those of the psABI. Only features that a compiler uses by itself when told to
optimise for a processor are reported. Those that code must request by name (random numbers, transactions, cache
control) are not, nor is TZCNT, which compilers emit for any processor because old ones run it as BSF.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from channel_tools.audit.model import ArchiveFacts, Instruction
from channel_tools.conda.specs import as_record, least_version, read_spec, specs_on
from channel_tools.system.archives import ar_members
from channel_tools.system.elf import ELF_MAGIC, elf_faults, open_elf
from channel_tools.system.errors import IntegrityError
from channel_tools.system.workers import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import StringTableSection

    from channel_tools.system.archives import ArMember

_PART_BYTES = 8 << 20
_ENOUGH_HITS = 64
_PADDING_BYTES = 64
_HDR_ENCODINGS = b"\x01\x1b\x03\x3b"
"""Version 1, relative pointers of 4 bytes: what every linker writes."""
_FUNCTION = 2
BASELINE = 1
_ADDED: Mapping[int, frozenset[str]] = {
    # channels' compilers are set to -march=nocona, whose two additions all but the first processors of 2003 have
    1: frozenset({"CMPXCHG16B", "SSE3"}),
    2: frozenset({"POPCNT", "SSSE3", "SSE4_1", "SSE4_2"}),
    3: frozenset({"AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA", "LZCNT", "MOVBE"}),
    4: frozenset({"AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"}),
}
_BEYOND = frozenset(
    {"ADX", "AES", "FMA4", "GFNI", "LWP", "PCLMULQDQ", "SHA", "SSE4A", "TBM", "VAES", "VPCLMULQDQ", "XOP"}
)
_BEYOND_FAMILIES = ("AVX512", "AVX_", "AMX_")
_HARMLESS_CODES = re.compile(r"TZCNT_R\d+_RM\d+")
_LEVEL_PACKAGES = frozenset({"_x86_64-microarch-level", "x86_64-microarch-level"})
_ARCHSPEC = "__archspec"
_LEVELS = range(BASELINE, 5)
THIN_MAGIC = b"!<thin>\n"
_SHF_EXECINSTR = 0x4
"""The flag of sections with machine code."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class CodeRange:
    """A contiguous range of machine code: its address and its offset in the file."""

    address: int
    offset: int
    size_bytes: int


class _Symbol(NamedTuple):
    """A function of a symbol table; its name is looked up only when it is needed."""

    address: int
    size_bytes: int
    name_offset: int
    strings: StringTableSection


def instructions_beyond(
    stream: BinaryIO, elf: ELFFile, *, level: int, path: Path | None = None, processes: int = 1
) -> tuple[Instruction, ...]:
    """The first instruction of each feature beyond ``level`` in an x86-64 file, in the order of the features' names.

    A file on disk (``path``) is decoded by several processes if its code is large. Each part of the code is decoded
    only until it has shown many.
    """
    ranges = code_ranges(elf)
    parts = list(_parts(ranges))
    hits: dict[str, int] = {}
    if path is not None and processes > 1 and len(parts) > 1:
        work = functools.partial(_decode_file, path, level=level)
        by_part = dict(
            run_in_processes(work, [tuple(part) for part in parts], processes=processes, activity="read a program")
        )
        results = [by_part[tuple(part)] for part in parts]
    else:
        results = [_decode(stream, part, level=level) for part in parts]
    for result in results:
        for feature, address in result.items():
            hits.setdefault(feature, address)
    return _described(elf, ranges, hits)


def code_ranges(elf: ELFFile) -> list[CodeRange]:
    """The code of a file by address: its functions, joined if only padding separates them, else its sections."""
    is_object = elf["e_type"] == "ET_REL"
    sections = [
        CodeRange(
            address=section["sh_offset" if is_object else "sh_addr"],
            offset=section["sh_offset"],
            size_bytes=section["sh_size"],
        )
        for section in elf.iter_sections()
        if section["sh_flags"] & _SHF_EXECINSTR and section["sh_type"] == "SHT_PROGBITS" and section["sh_size"]
    ]
    functions = _symbol_functions(elf) if is_object else _unwound_functions(elf)
    if not functions:
        return sorted(sections)
    ranges = list(_joined(functions, sections))
    if is_object:
        ranges += [
            code_range for code_range in sections if not any(_is_in(start, code_range) for start, _size in functions)
        ]
    return sorted(ranges)


def _symbol_functions(elf: ELFFile) -> list[tuple[int, int]]:
    """Offset in the file and size of every function that an object file names."""
    return sorted((symbol.address, symbol.size_bytes) for symbol in _named_functions(elf) if symbol.size_bytes)


def _unwound_functions(elf: ELFFile) -> list[tuple[int, int]]:
    """Address and size of every function in the unwind table; empty if there is no table in the usual format."""
    header, frames = elf.get_section_by_name(".eh_frame_hdr"), elf.get_section_by_name(".eh_frame")
    if header is None or frames is None:
        return []
    table, unwind, base = header.data(), frames.data(), frames["sh_addr"]
    if table[:4] != _HDR_ENCODINGS:
        return []
    (count,) = struct.unpack_from("<I", table, 8)
    functions = []
    for start, record in struct.iter_unpack("<ii", table[12 : 12 + 8 * count]):
        address, at = header["sh_addr"] + start, header["sh_addr"] + record - base
        if not 0 <= at <= len(unwind) - 16:
            return []
        relative, size = struct.unpack_from("<iI", unwind, at + 8)
        if base + at + 8 + relative != address:
            return []  # another encoding of addresses
        functions.append((address, size))
    return sorted(functions)


def _joined(functions: Sequence[tuple[int, int]], sections: Sequence[CodeRange]) -> Iterator[CodeRange]:
    for section in sorted(sections):
        start = last = None
        for address, size in functions:
            if not _is_in(address, section):
                continue
            if start is None or last is None:
                start, last = address, address + size
            elif address - last <= _PADDING_BYTES and address - start < _PART_BYTES:
                last = max(last, address + size)
            else:
                yield _range_in(section, start, last)
                start, last = address, address + size
        if start is not None and last is not None:
            yield _range_in(section, start, last)


def _is_in(address: int, section: CodeRange) -> bool:
    return section.address <= address < section.address + section.size_bytes


def _range_in(section: CodeRange, start: int, end: int) -> CodeRange:
    end = min(end, section.address + section.size_bytes)
    return CodeRange(address=start, offset=section.offset + start - section.address, size_bytes=end - start)


def _parts(ranges: Sequence[CodeRange]) -> Iterator[list[CodeRange]]:
    part: list[CodeRange] = []
    size = 0
    for code_range in ranges:
        part.append(code_range)
        size += code_range.size_bytes
        if size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _decode_file(path: Path, part: Sequence[CodeRange], *, level: int) -> dict[str, int]:
    with path.open("rb") as stream:
        return _decode(stream, part, level=level)


def _decode(stream: BinaryIO, part: Sequence[CodeRange], *, level: int) -> dict[str, int]:
    """Map each feature found to the address of its first instruction."""
    from iced_x86 import Decoder  # noqa: PLC0415 - only where machine code is read

    beyond = codes_beyond(level)
    addresses: dict[str, int] = {}
    hits = 0
    for code_range in part:
        stream.seek(code_range.offset)
        for instruction in Decoder(64, stream.read(code_range.size_bytes), ip=code_range.address):
            if instruction.code in beyond:
                addresses.setdefault(beyond[instruction.code], instruction.ip)
                hits += 1
                if hits >= _ENOUGH_HITS:
                    return addresses
    return addresses


def _described(elf: ELFFile, ranges: Sequence[CodeRange], hits: dict[str, int]) -> tuple[Instruction, ...]:
    if not hits:
        return ()
    names = _function_names(elf, set(hits.values()))
    described = []
    for feature, address in sorted(hits.items()):
        around = next(code_range for code_range in ranges if _is_in(address, code_range))
        offset = around.offset + address - around.address
        described.append(Instruction(feature=feature, offset=offset, function=names.get(address, "")))
    return tuple(described)


def _function_names(elf: ELFFile, addresses: set[int]) -> dict[int, str]:
    """Map addresses to the names of the functions that contain them."""
    names: dict[int, str] = {}
    for symbol in _named_functions(elf):
        for address in addresses - names.keys():
            if symbol.address <= address < symbol.address + symbol.size_bytes:
                names[address] = symbol.strings.get_string(symbol.name_offset)
    return names


def _named_functions(elf: ELFFile) -> Iterator[_Symbol]:
    """The functions among the symbols. Tables are unpacked here, since pyelftools makes an object for each symbol."""
    from elftools.elf.sections import StringTableSection  # noqa: PLC0415 - as in open_elf

    starts = {}
    if elf["e_type"] == "ET_REL":
        starts = {number: section["sh_offset"] for number, section in enumerate(elf.iter_sections())}
    for section_name in (".symtab", ".dynsym"):
        table = elf.get_section_by_name(section_name)
        if table is None:
            continue
        strings = elf.get_section(table["sh_link"])
        if not isinstance(strings, StringTableSection):
            continue
        for name, info, _other, section, start, size in struct.iter_unpack("<IBBHQQ", table.data()):
            if info & 0xF == _FUNCTION:
                yield _Symbol(starts.get(section, 0) + start, size, name, strings)


def required_level(specs: Iterable[str]) -> int:
    """The processor level that requirements or constraints ask for; 1 if they ask for none.

    ``_x86_64-microarch-level >=3`` and ``__archspec * x86_64_v3`` are understood.
    """
    return max((_level_of(spec) for spec in specs), default=BASELINE)


def _level_of(spec: str) -> int:
    if specs_on(_LEVEL_PACKAGES, [spec]):
        return next(iter(least_version(spec)), BASELINE)
    if specs_on({_ARCHSPEC}, [spec]) and (build := read_spec(spec).build) is not None:
        match_spec = read_spec(f"{_ARCHSPEC} * {build}")
        accepted = (level for level in _LEVELS if match_spec.matches(as_record(_ARCHSPEC, "1", level_name(level))))
        return next(accepted, BASELINE)
    return BASELINE


def level_name(level: int) -> str:
    """The level's name in archspec: ``x86_64`` for the baseline, ``x86_64_v3`` for level 3."""
    return "x86_64" if level == BASELINE else f"x86_64_v{level}"


@functools.cache
def codes_beyond(level: int) -> Mapping[int, str]:
    """Map the decoder's codes of the instructions that a processor of this level may lack to their features."""
    from iced_x86 import Code, CpuidFeature, Instruction  # noqa: PLC0415 - only where machine code is read

    features = {number: name for name, number in vars(CpuidFeature).items() if isinstance(number, int)}
    included = frozenset[str]().union(*(names for added, names in _ADDED.items() if added <= level))
    instruction = Instruction()
    feature_of_code: dict[int, str] = {}
    for name, code in vars(Code).items():
        if not isinstance(code, int) or _HARMLESS_CODES.fullmatch(name):
            continue
        instruction.code = code  # type: ignore[assignment]
        beyond = [
            feature
            for number in instruction.cpuid_features()
            if _is_watched(feature := features[number]) and feature not in included
        ]
        if beyond:
            feature_of_code[code] = beyond[-1]
    return feature_of_code


def _is_watched(feature: str) -> bool:
    return (
        feature in _BEYOND or feature.startswith(_BEYOND_FAMILIES) or any(feature in added for added in _ADDED.values())
    )


def read_archive(stream: BinaryIO, *, level: int, reads_code: bool) -> ArchiveFacts:
    """What the rules need to know about an archive; if it is damaged, reading ends and the damage is recorded."""
    members: list[tuple[str, tuple[Instruction, ...]]] = []
    machines: dict[str, str] = {}
    stream.seek(0)
    if stream.read(len(THIN_MAGIC)) == THIN_MAGIC:
        return ArchiveFacts(damage="it is a thin archive, which does not contain its files")
    damage = ""
    try:
        for member in ar_members(stream):
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
    content: bytes, member: ArMember, *, level: int, reads_code: bool
) -> tuple[str, tuple[Instruction, ...]]:
    """The machine of an object file, and its instructions beyond the level with their offsets in the archive."""
    stream = io.BytesIO(content)
    try:
        elf = open_elf(stream)
        machine = str(elf["e_machine"])
        is_read = reads_code and machine == "EM_X86_64"
        instructions = instructions_beyond(stream, elf, level=level) if is_read else ()
    except elf_faults() as err:
        raise IntegrityError(f"{member.name}: {str(err) or type(err).__name__}") from None
    return machine, tuple(
        dataclasses.replace(instruction, offset=member.offset + instruction.offset) for instruction in instructions
    )
