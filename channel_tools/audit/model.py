# SPDX-License-Identifier: BSD-3-Clause
"""What an audit says: findings by rule, and those that a recipe declares and gives its reason for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence


class Rule(StrEnum):
    """What every package keeps to; docs/reference/audit.md has the case behind each."""

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
    PLACEHOLDER = "placeholder"
    """Every build prefix in a file is one that installation replaces, in the right way."""
    SELF_LOCATING = "self-locating"
    """.pc, CMake and -config files find the prefix from where they lie."""
    INTERPRETER = "interpreter"
    """Programs name an interpreter of the prefix, /bin/sh, /bin/bash or /usr/bin/env, in a line that kernels take."""
    LINK = "link"
    """Links are relative, stay inside the prefix and lead to something."""
    MODE = "mode"
    """No setuid, setgid or sticky bit, nothing that everyone may write, no device or pipe."""
    GLIBC = "glibc"
    """The package requires the glibc that its files want."""
    LIBSTDCXX = "libstdcxx"
    """The package requires the libstdcxx and libgcc that its files want."""
    INSTRUCTIONS = "instructions"
    """No instruction beyond the processor that the package requires, but behind a declared choice at run time."""
    METADATA = "metadata"
    """info/ names no folder of the machine that built the package, nor an address on it."""
    EXCEPTION = "exception"
    """What the recipe declares under extra.audit is well-formed, narrow and reasoned."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Finding:
    """One broken rule: where, what was found, what is expected, how to mend it."""

    package: str
    """The package's file name; empty for a file of a prefix that no package owns."""
    file: str
    """The path inside the prefix (or info/...), empty when the package as a whole is meant."""
    rule: Rule
    where: str = ""
    """``line 3`` of a text, ``offset 0x1f40`` of a binary file, else empty."""
    subject: str = ""
    """The library or rpath that it is about, where it is about one."""
    found: str
    expected: str
    mend: str

    def __str__(self) -> str:
        place = " ".join(part for part in (self.file, self.where) if part)
        parts = (self.package, place, self.rule.value, self.found)
        return ": ".join(part for part in parts if part)


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What a rule expects of every file, and how to mend one that breaks it."""

    rule: Rule
    expected: str
    mend: str

    def broken(self, package: str, file: str, found: str, *, where: str = "", subject: str = "") -> Finding:
        """The finding of a file that breaks it."""
        return Finding(
            package=package,
            file=file,
            rule=self.rule,
            where=where,
            subject=subject,
            found=found,
            expected=self.expected,
            mend=self.mend,
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


Kind = Literal["package", "channel", "prefix"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """The audit of everything that was asked for."""

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
