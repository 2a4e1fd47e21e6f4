# SPDX-License-Identifier: BSD-3-Clause
"""The values of the audit: findings by rule, those that a recipe declares with a reason, and the facts about packages.

Facts are what is read from a package, before any rule is applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from channel_tools.conda.specs import texts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.conda.archive import PackageInfo
    from channel_tools.conda.compiled_in import HostPackage
Kind = Literal["package", "channel", "prefix"]
SYSROOT = "/sysroot/"
"""A part of the path of files that are linked against but never loaded: those of a compiler's sysroot."""
FileKind = Literal["file", "link", "special"]
PlaceholderMode = Literal["text", "binary"]


class Rule(StrEnum):
    """The rules for packages; docs/reference/audit.md gives the case behind each."""

    PACKAGE = "package"
    """The file is a complete conda package; an installed one has its files."""
    ELF = "elf"
    """ELF files are whole and made for the package's platform."""
    RPATH = "rpath"
    """Rpaths are relative to $ORIGIN and stay inside the prefix."""
    NEEDED = "needed"
    """Each needed library is found through the file's own rpath, in the package or in what it depends on."""
    BUILD_PATH = "build-path"
    """No file names a folder of the machine that built it."""
    SITE_PATH = "site-path"
    """No string of an ELF file is a path of a site or of another library's plugins: others decide what is there."""
    HOST_PATH = "host-path"
    """No string of an ELF file is a path of the machine, except those that every system has."""
    PLACEHOLDER = "placeholder"
    """Installation replaces every build prefix in a file, in the right mode."""
    SELF_LOCATING = "self-locating"
    """.pc, CMake and -config files find the prefix relative to their own location."""
    INTERPRETER = "interpreter"
    """Programs name an interpreter of the prefix, /bin/sh, /bin/bash or /usr/bin/env, in a line that kernels accept."""
    LINK = "link"
    """Links are relative, stay inside the prefix and lead to something; Windows never gets one."""
    LINK_SCRIPT = "link-script"
    """No script that clients would have to run while they install or remove the package."""
    MODE = "mode"
    """No setuid, setgid or sticky bit, no world-writable files, no device or pipe."""
    GLIBC = "glibc"
    """The package requires the glibc that its files need, and the channel's base has it."""
    LIBSTDCXX = "libstdcxx"
    """The package requires the libstdcxx and libgcc that its files need."""
    INSTRUCTIONS = "instructions"
    """No instruction that the required processor may lack, except in code with a declared check at run time."""
    LICENSE = "license"
    """The licence texts of host packages that may be compiled in are in the package, or the recipe says why not."""
    METADATA = "metadata"
    """info/ names no folder of the machine that built the package, nor an address on it."""
    EXCEPTION = "exception"
    """What the recipe declares under extra.audit is well-formed and narrow, and has a reason."""
    DEPENDS = "depends"
    """Foundations only: a package of the channel satisfies each requirement."""
    OWNER = "owner"
    """Foundations only: no path belongs to two packages."""
    LEFTOVER = "leftover"
    """Foundations only: no .pc file, CMake file, script or shebang names the machine it was made on, nor /usr."""


_ADVISORY = frozenset({Rule.LICENSE, Rule.HOST_PATH})
"""Rules whose findings do not keep a package out of a channel: what they ask for needs a person's judgement."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Finding:
    """One broken rule: where, what was found, what is expected, how to fix it."""

    package: str
    """The package's file name; empty for a file of a prefix that no package owns."""
    file: str
    """The path inside the prefix (or info/...), empty if the finding is about the whole package."""
    rule: Rule
    where: str = ""
    """``line 3`` of a text, ``offset 0x1f40`` of a binary file, else empty."""
    subject: str = ""
    """The library, rpath or path that the finding is about, if any."""
    found: str
    expected: str
    fix: str

    def __str__(self) -> str:
        position = " ".join(part for part in (self.file, self.where) if part)
        parts = (self.package, position, self.rule.value, self.found)
        return ": ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """What a rule expects of every file, and how to fix one that breaks it."""

    rule: Rule
    expected: str
    fix: str

    def violation(self, package: str, file: str, problem: str, *, where: str = "", subject: str = "") -> Finding:
        """The finding for a file that breaks the rule."""
        return Finding(
            package=package,
            file=file,
            rule=self.rule,
            where=where,
            subject=subject,
            found=problem,
            expected=self.expected,
            fix=self.fix,
        )


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Excused:
    """A finding that the recipe declares, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageAudit:
    """The audit of one package."""

    package: str
    subdir: str
    files: int
    elf_files: int
    seconds: float
    findings: tuple[Finding, ...]
    excused: tuple[Excused, ...] = ()
    info: PackageInfo | None = None
    """What a channel needs to know about the package, if it was read to be added to one."""

    @property
    def barring(self) -> tuple[Finding, ...]:
        """The findings that keep it out of a channel."""
        return tuple(finding for finding in self.findings if finding.rule not in _ADVISORY)


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """The audit of a package, a channel, an environment or a foundation."""

    kind: Kind
    target: str
    packages: Sequence[PackageAudit]

    @property
    def findings(self) -> list[Finding]:
        """All findings, by package."""
        return [finding for package in self.packages for finding in package.findings]

    @property
    def excused(self) -> list[Excused]:
        """All findings that recipes declare."""
        return [excused for package in self.packages for excused in package.excused]


@dataclass(frozen=True, kw_only=True, slots=True)
class Occurrence:
    """Something found in a file; ``line`` is None in binary files."""

    text: str
    offset: int
    line: int | None = None

    @property
    def where(self) -> str:
        """The position to show to people: the line, else the offset."""
        return f"offset {self.offset:#x}" if self.line is None else f"line {self.line}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placeholder:
    """What paths.json says about a build prefix in a file, which clients replace when they install it."""

    text: str
    mode: PlaceholderMode


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """The first machine instruction of a feature that the required processor may lack."""

    feature: str
    offset: int
    function: str
    """The function's symbol, empty if symbols are stripped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """What an ELF file requires of the loader and the processor."""

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
    paths: tuple[Occurrence, ...] = ()
    """The paths of the machine in its strings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveFacts:
    """What the object files of a static archive require of the processor."""

    members: tuple[tuple[str, tuple[Instruction, ...]], ...] = ()
    """The members with instructions that the required processor may lack."""
    machines: Mapping[str, str] = field(default_factory=dict)
    """Each machine that members are made for, and the first member made for it."""
    damage: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file or link of a package."""

    path: str
    kind: FileKind
    mode: int
    size_bytes: int = 0
    target: str = ""
    """The target of a link, as written in it."""
    is_text: bool = False
    placeholder: Placeholder | None = None
    shebang: str = ""
    """The first line of a program, without ``#!``."""
    build_paths: tuple[Occurrence, ...] = ()
    strays: tuple[Occurrence, ...] = ()
    """Build prefixes that installation does not replace."""
    host_paths: tuple[Occurrence, ...] = ()
    """Absolute paths, including the placeholder's, in a file that should find the prefix relative to itself."""
    leftovers: tuple[Occurrence, ...] = ()
    """Host paths in a file that controls builds or programs; only if the reader was asked to look for them."""
    elf: ElfFacts | None = None
    archive: ArchiveFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredException:
    """``extra.audit.allow`` or ``runtime_dispatch`` of a recipe: files that may break a rule, and the reason."""

    rule: str
    files: tuple[str, ...]
    reason: str
    paths: tuple[str, ...] = ()
    """Of the rules about paths: which ones are meant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a recipe declares about its package; ``faults`` describes declarations that are not valid."""

    exceptions: tuple[DeclaredException, ...] = ()
    missing_dso: tuple[str, ...] = ()
    """``build.dynamic_linking.missing_dso_allowlist``: sonames or globs of the libraries that the site provides."""
    rpaths: tuple[str, ...] = ()
    """``build.dynamic_linking.rpath_allowlist``."""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageFacts:
    """Everything the rules need to know about one package.

    ``index`` is its index.json. ``damage`` says why the package could not be read to its end.
    """

    file_name: str
    subdir: str
    name: str
    index: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    entry_points: tuple[str, ...] = ()
    declared: Declared = field(default_factory=Declared)
    info_paths: Sequence[tuple[str, Occurrence]] = ()
    """Files of info/ and the paths or addresses of the build machine that they name."""
    damage: Sequence[str] = ()
    host: Sequence[HostPackage] = ()
    """The environment that it was built in, as recorded in it."""
    licensed: frozenset[str] = frozenset()
    """The host packages whose licence texts it has."""

    @property
    def depends(self) -> tuple[str, ...]:
        """Its requirements, as MatchSpecs."""
        return texts_of(self.index, "depends")

    @property
    def constrains(self) -> tuple[str, ...]:
        """Its constraints on what may be installed beside it."""
        return texts_of(self.index, "constrains")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependencies:
    """What a package can use once it is installed: the files and links of its dependencies, and its own."""

    files: frozenset[str]
    links: Mapping[str, str]
    depends: tuple[str, ...] = ()
    """The requirements of everything in the closure."""
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The versions of each package in the closure, by name."""
    unresolved: tuple[str, ...] = ()
    """Requirements that no known package satisfies."""
    compilable: Mapping[str, str] = field(default_factory=dict)
    """What may have been compiled in, by the names of known host packages that are not needed at run time."""
    glibc: str | None = None
    """The oldest glibc that the channel promises to run on; None if it promises none."""
