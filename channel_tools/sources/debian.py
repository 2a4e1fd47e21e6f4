# SPDX-License-Identifier: BSD-3-Clause
"""Sources that Debian's source packages hold byte for byte, found by their sha256.

Debian keeps upstream's release tarballs unchanged where it can, and its signed index names the sha256 of each. So a
tarball is found there without any table of ours, whatever Debian calls it. The addresses and keyrings are the host's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from debian.deb822 import Deb822

from channel_tools.foundation.apt import Apt, complaints, host_sources
from channel_tools.system.errors import NetworkError
from channel_tools.system.files import exclusive_lock
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_HELPER = "/usr/lib/apt/apt-helper"
_LOCK_WAIT_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianFile:
    """A file of a source package."""

    package: str
    version: str
    file_name: str

    def __str__(self) -> str:
        return f"{self.file_name} of Debian's source package {self.package} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianSources:
    """Debian's source packages of one suite, through apt with a state folder of its own."""

    state: Path
    suite: str
    architecture: str
    sources: str | None = None
    """Where packages come from, in the deb822 format of sources.list(5); None: the host's sources for the suite."""

    def find(self, hashes: Collection[str]) -> dict[str, DebianFile]:
        """The files with these sha256 values, from an index fetched anew.

        Raises NetworkError when the index cannot be had, FoundationError on a host without apt or Debian's sources.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(self.state / ".lock", what="the index of Debian's sources", timeout_s=_LOCK_WAIT_S):
            sources = self.sources or re.sub(r"(?m)^Types: deb$", "Types: deb-src", host_sources(self.suite))
            Apt(state=self.state, suite=self.suite, architecture=self.architecture, sources=sources).update()
            words = ["indextargets", "--format", "$(FILENAME)", "Created-By: Sources"]
            listed = run_command(["apt-get", "-c", self._configuration, *words]).stdout
            found: dict[str, DebianFile] = {}
            for index in listed.split():
                text = run_command([_HELPER, "-c", self._configuration, "cat-file", index]).stdout
                found |= {sha256: item for sha256 in hashes if (item := _find(text, sha256)) is not None}
        return found

    def download(self, file: DebianFile, folder: Path) -> Path:
        """Download ``file`` into ``folder``; apt checks it against its index. Raises NetworkError."""
        words: list[str | Path] = [
            "apt-get",
            "-c",
            self._configuration,
            "-q",
            "source",
            "--download-only",
            "--tar-only",
        ]
        result = run_command([*words, f"{file.package}={file.version}"], cwd=folder, check=False)
        path = folder / file.file_name
        if not path.is_file():
            raise NetworkError(f"{file} could not be downloaded: {complaints(result)}")
        return path

    @property
    def _configuration(self) -> Path:
        return self.state / "apt.conf"


def _find(text: str, sha256: str) -> DebianFile | None:
    """The file that a stanza of a Sources index names with this hash."""
    at = text.find(f" {sha256} ")
    if at < 0:
        return None
    start, end = text.rfind("\n\n", 0, at) + 1, text.find("\n\n", at)
    stanza = Deb822(text[start : end if end >= 0 else None].strip("\n").splitlines())
    for line in stanza.get("Checksums-Sha256", "").splitlines():
        words = line.split()
        if words[:1] == [sha256]:
            return DebianFile(package=stanza["Package"], version=stanza["Version"], file_name=words[-1])
    return None
