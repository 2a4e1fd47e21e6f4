# SPDX-License-Identifier: BSD-3-Clause
"""What an ELF file asks of the loader: needed libraries, rpaths, symbol versions.

Read from the dynamic segment, as the loader does, and not from section names, which tools may drop. pyelftools does the
reading: it takes long to import, so it is imported for the first ELF file.

The build ids that linkers write into programs and libraries.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import posixpath
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, BinaryIO

from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

ELF_MAGIC = b"\x7fELF"
_TEXT_SUFFIXES = frozenset({".cmake", ".h", ".hpp", ".ipp", ".json", ".pc", ".py", ".pyi", ".txt"})
# pyelftools hangs the string of such a tag on it under this name
_STRING_TAGS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RPATH": "rpath", "DT_RUNPATH": "runpath"}

# What glibc itself provides: the host's, by design of conda packages. libnsl and libcrypt left it long ago.
GLIBC_LIBRARIES = frozenset(
    {
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libanl.so.1",
        "libc.so.6",
        "libdl.so.2",
        "libm.so.6",
        "libmvec.so.1",
        "libpthread.so.0",
        "libresolv.so.2",
        "librt.so.1",
        "libthread_db.so.1",
        "libutil.so.1",
    }
)


_NOTE_HEADER_BYTES = 12
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfInfo:
    """The dynamic segment of one ELF file, in the loader's words."""

    needed: tuple[str, ...]
    soname: str | None
    rpaths: tuple[str, ...]
    """DT_RPATH and DT_RUNPATH, split at the colons, in search order."""
    is_dynamic: bool
    """False for object files and static programs, whose rpath cannot be set."""
    symbol_versions: frozenset[str]
    """What is asked of other libraries, ``GLIBC_2.34`` and the like."""


def open_elf(stream: IO[bytes]) -> ELFFile:
    """The ELF file in a seekable stream. Reading a damaged one raises one of ``elf_faults``, here or later."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - see above

    return ELFFile(stream)


@functools.cache
def elf_faults() -> tuple[type[Exception], ...]:
    """What reading a damaged ELF file raises."""
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - see above
    from elftools.construct import ConstructError  # noqa: PLC0415

    own = (AssertionError, AttributeError, TypeError, ValueError, LookupError, struct.error)
    return (ELFError, ConstructError, *own)


def is_elf(path: Path) -> bool:
    """Whether a regular file begins as ELF files do. Headers and scripts are known by name: packages have thousands."""
    if path.suffix in _TEXT_SUFFIXES:
        return False
    with path.open("rb") as stream:
        return stream.read(len(ELF_MAGIC)) == ELF_MAGIC


def read_elf_file(path: Path) -> ElfInfo:
    """As read_elf, of a file on disk."""
    with path.open("rb") as stream:
        return read_elf(stream, name=str(path))


def read_elf(stream: BinaryIO, *, name: str) -> ElfInfo:
    """Read the dynamic segment of a seekable ELF file; ``name`` is for messages.

    Raises IntegrityError when the file is cut short or damaged.
    """
    from elftools.elf.dynamic import DynamicSegment  # noqa: PLC0415 - see above

    try:
        elf = open_elf(stream)
        dynamic = next((segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)), None)
        if dynamic is None:
            return ElfInfo(needed=(), soname=None, rpaths=(), is_dynamic=False, symbol_versions=frozenset())
        tags = list(_interesting_tags(dynamic))
        versions = frozenset(_symbol_versions(elf))
    except elf_faults() as err:
        hint = "unpack or copy it again; if it comes from upstream like this, leave it out of the package"
        raise IntegrityError(f"{name}: the ELF file is damaged or cut short ({err})", hint=hint) from err
    rpaths = [value for tag in ("DT_RPATH", "DT_RUNPATH") for kind, value in tags if kind == tag]
    return ElfInfo(
        needed=tuple(value for kind, value in tags if kind == "DT_NEEDED"),
        soname=next((value for kind, value in tags if kind == "DT_SONAME"), None),
        rpaths=tuple(part for value in rpaths for part in value.split(":") if part),
        is_dynamic=True,
        symbol_versions=versions,
    )


def needed_versions(path: Path) -> dict[str, frozenset[str]]:
    """The versions of symbols that a file asks of each library, by its soname. Raises IntegrityError as read_elf."""
    from elftools.elf.gnuversions import GNUVerNeedSection  # noqa: PLC0415 - see above

    needed: dict[str, frozenset[str]] = {}
    with path.open("rb") as stream, _damage_named(path):
        for section in open_elf(stream).iter_sections():
            if isinstance(section, GNUVerNeedSection):
                for library, versions in section.iter_versions():
                    needed[str(library.name)] = frozenset(version.name for version in versions)
    return needed


def defined_versions(path: Path) -> frozenset[str]:
    """The versions of symbols that a library has. Raises IntegrityError as read_elf."""
    from elftools.elf.gnuversions import GNUVerDefSection  # noqa: PLC0415 - see above

    defined: set[str] = set()
    with path.open("rb") as stream, _damage_named(path):
        for section in open_elf(stream).iter_sections():
            if isinstance(section, GNUVerDefSection):
                # a definition's further names are those that it follows
                defined.update(next(iter(names)).name for _, names in section.iter_versions())
    return frozenset(defined)


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except elf_faults() as err:
        hint = "unpack or copy it again"
        raise IntegrityError(f"{path}: the ELF file is damaged or cut short ({err})", hint=hint) from err


def newest_glibc(versions: frozenset[str]) -> tuple[int, ...] | None:
    """The newest glibc release among symbol versions, as numbers; None when none is asked for."""
    numbers = [version.removeprefix("GLIBC_") for version in versions if version.startswith("GLIBC_2")]
    return max((tuple(int(part) for part in version.split(".")) for version in numbers), default=None)


def search_folders(file: str, rpaths: tuple[str, ...]) -> tuple[str, ...]:
    """The folders, relative to the prefix, that ``$ORIGIN``-relative rpaths of ``file`` (relative too) name.

    A folder outside the prefix comes out beginning with ``..``; an absolute rpath as it is.
    """
    here = posixpath.dirname(file)
    folders = []
    for rpath in rpaths:
        plain = rpath.replace("${ORIGIN}", "$ORIGIN")
        if plain == "$ORIGIN" or plain.startswith("$ORIGIN/"):
            folders.append(posixpath.normpath(posixpath.join(here, "." + plain.removeprefix("$ORIGIN"))))
        else:
            folders.append(rpath)
    return tuple(folders)


def _interesting_tags(dynamic: DynamicSegment) -> Iterator[tuple[str, str]]:
    for tag in dynamic.iter_tags():
        kind = tag.entry.d_tag
        if kind in _STRING_TAGS:
            yield kind, getattr(tag, _STRING_TAGS[kind])


def _symbol_versions(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.gnuversions import GNUVerNeedSection  # noqa: PLC0415 - see above

    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _library, versions in section.iter_versions():
                yield from (version.name for version in versions)


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
        code = elf.get_section_by_name(".text")
        if elf.get_section_by_name(".gnu_debuglink") is not None or (
            code is not None and code["sh_type"] == "SHT_NOBITS"
        ):
            return []
        for segment in elf.iter_segments("PT_NOTE"):
            for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    spans.add((note["n_offset"] + _NOTE_HEADER_BYTES + len(b"GNU\0"), note["n_descsz"]))
    except elf_faults():
        return []
    return sorted(spans)
