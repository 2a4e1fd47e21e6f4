# SPDX-License-Identifier: BSD-3-Clause
"""What reading a package gives and the rules judge: plain values, nothing about them decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SYSROOT = "/sysroot/"
"""In the path of what is linked against and never loaded: the headers and libraries of a compiler's sysroot."""
FileKind = Literal["file", "link", "special"]
PlaceholderMode = Literal["text", "binary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Something found in a file; ``line`` is None in binary files."""

    text: str
    offset: int
    line: int | None = None

    @property
    def where(self) -> str:
        """For people: the line, else the offset."""
        return f"offset {self.offset:#x}" if self.line is None else f"line {self.line}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placeholder:
    """What paths.json says about a build prefix in a file, which clients replace when they install it."""

    text: str
    mode: PlaceholderMode


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """The first machine instruction of a feature that the required processor need not have."""

    feature: str
    offset: int
    function: str
    """The function's symbol, empty where symbols are stripped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """What an ELF file asks of the loader and the processor."""

    machine: str
    needed: tuple[str, ...]
    rpaths: tuple[str, ...]
    folders: tuple[str, ...]
    """Where the rpaths lead, relative to the prefix; in the order of ``rpaths``."""
    symbol_versions: frozenset[str]
    isa_needed: str = ""
    """The x86-64 level that the linker wrote into the file's property note, empty for none."""
    instructions: tuple[Instruction, ...] = ()
    damage: str = ""
    is_dynamic: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFacts:
    """What the object files of a static archive ask of the processor."""

    members: tuple[tuple[str, tuple[Instruction, ...]], ...] = ()
    """Those with instructions beyond the required processor."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Each machine that a member is made for, and the first such member."""
    damage: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file or link of a package."""

    path: str
    kind: FileKind
    mode: int
    size_bytes: int = 0
    target: str = ""
    """Where a link leads, as it is written."""
    is_text: bool = False
    placeholder: Placeholder | None = None
    shebang: str = ""
    """The first line of a program, without ``#!``."""
    build_paths: tuple[Place, ...] = ()
    strays: tuple[Place, ...] = ()
    """Build prefixes that installation does not replace."""
    host_paths: tuple[Place, ...] = ()
    """Absolute paths, the placeholder's too, in a file that ought to locate itself."""
    elf: ElfFacts | None = None
    archive: ArchiveFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredException:
    """``extra.audit.allow`` or ``runtime_dispatch`` of a recipe: these files may break this rule, for this reason."""

    rule: str
    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a recipe declares about its package; ``faults`` are what of it could not be understood."""

    exceptions: tuple[DeclaredException, ...] = ()
    missing_dso: tuple[str, ...] = ()
    """``build.dynamic_linking.missing_dso_allowlist``: sonames or globs of what the site brings."""
    rpaths: tuple[str, ...] = ()
    """``build.dynamic_linking.rpath_allowlist``."""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFacts:
    """Everything the rules want to know about one package.

    ``index`` is its index.json. ``damage`` says why it could not be read to the end.
    """

    file_name: str
    subdir: str
    name: str
    index: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    entry_points: tuple[str, ...] = ()
    declared: Declared = field(default_factory=Declared)
    info_paths: Sequence[tuple[str, Place]] = ()
    """Files of info/ and what of the build machine they name."""
    damage: Sequence[str] = ()

    @property
    def depends(self) -> tuple[str, ...]:
        """Its requirements, as MatchSpecs."""
        return tuple(str(spec) for spec in self.index.get("depends") or ())

    @property
    def constrains(self) -> tuple[str, ...]:
        """Its constraints on what may be installed beside it."""
        return tuple(str(spec) for spec in self.index.get("constrains") or ())


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What stands around a package once it is installed: the files and links of its dependencies, and itself."""

    files: frozenset[str]
    links: Mapping[str, str]
    depends: tuple[str, ...] = ()
    """The requirements of everything in the closure."""
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name to the versions of what is in the closure."""
    unresolved: tuple[str, ...] = ()
    """Requirements that no known package meets."""
