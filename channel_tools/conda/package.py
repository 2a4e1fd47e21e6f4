# SPDX-License-Identifier: BSD-3-Clause
"""How a package is named and referred to, from the plan to the mirror.

A file name is unique within a subdir, so a channel knows a package by both: ``linux-64/zlib-1.3-h1_0.conda``. A name
says nothing about bytes; whoever moves a package from one place to another holds a PackageRef, which does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NOARCH = "noarch"
PACKAGE_SUFFIX = ".conda"
OLD_SUFFIX = ".tar.bz2"
"""Of packages in the format before .conda: installed and mirrored, never built or indexed here."""
_FILE_NAME = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)-(?P<build>[^-]+)(?P<suffix>\.conda|\.tar\.bz2)")


@dataclass(frozen=True, slots=True, order=True)
class PackageKey:
    """A package's place in a channel; its text is ``subdir/file name``."""

    subdir: str
    file_name: str

    def __str__(self) -> str:
        return f"{self.subdir}/{self.file_name}"

    @classmethod
    def of(cls, path: Path) -> PackageKey:
        """The key of a package file that lies at ``.../subdir/file name``."""
        return cls(path.parent.name, path.name)

    def path_in(self, channel: Path) -> Path:
        """Where the file lies in a channel's folder."""
        return channel / self.subdir / self.file_name

    @classmethod
    def parse(cls, text: str) -> PackageKey:
        """The key that ``subdir/file name`` names. Raises ValueError for any other text."""
        subdir, slash, file_name = text.partition("/")
        if not (subdir and slash and file_name) or "/" in file_name:
            raise ValueError(f"{text!r} does not name a package; expected subdir/file name")
        return cls(subdir, file_name)


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PackageRef:
    """One package's exact bytes: its key, its sha256 in hexadecimal and its size.

    ``foundation`` says that it was not built from a recipe of ours. Where nothing says so, a package is taken for ours:
    that is the stricter side, since the audit then excuses only what the recipe declares, and its digest must be new.
    The fields are flat because this is also its form in JSON between our server and its clients, which may leave
    ``foundation`` out.
    """

    subdir: str
    file_name: str
    sha256: str
    size_bytes: int
    foundation: bool = False

    @property
    def key(self) -> PackageKey:
        """Its place in a channel."""
        return PackageKey(self.subdir, self.file_name)


def split_file_name(file_name: str, *, old_format: bool = False) -> tuple[str, str, str] | None:
    """Name, version and build of a ``.conda`` file name (``old_format``: or ``.tar.bz2``); None when it is not one."""
    match = _FILE_NAME.fullmatch(file_name)
    if match is None or not (old_format or match["suffix"] == PACKAGE_SUFFIX):
        return None
    return match["name"], match["version"], match["build"]
