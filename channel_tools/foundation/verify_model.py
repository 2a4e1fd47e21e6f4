# SPDX-License-Identifier: BSD-3-Clause
"""What `foundation verify` finds: one value per fault, named by the rule that it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The promises that every package of a foundation keeps."""

    PACKAGE = "package"
    """The file is a complete conda package."""
    METADATA = "metadata"
    """index.json, paths.json and the file's name and content say the same."""
    DEPENDS = "depends"
    """Each requirement is met by a package of the channel."""
    ELF = "elf"
    """ELF files are whole."""
    NEEDED = "needed"
    """Each needed library is found through the file's own rpath, in the package or in what it depends on."""
    RPATH = "rpath"
    """Rpaths are relative and stay inside the prefix."""
    GLIBC = "glibc"
    """The package asks for the glibc that its files want."""
    LINK = "link"
    """Links are relative and lead to something that is there."""
    OWNER = "owner"
    """No path belongs to two packages."""
    LEFTOVER = "leftover"
    """No .pc file, CMake file, script or shebang names the machine it was made on, nor /usr."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Finding:
    """One broken promise."""

    package: str
    """The package's file name."""
    file: str
    """The path inside the prefix (or info/...), empty when the package as a whole is meant."""
    rule: Rule
    message: str

    def __str__(self) -> str:
        where = f"{self.package}: {self.file}" if self.file else self.package
        return f"{where}: {self.rule}: {self.message}"
