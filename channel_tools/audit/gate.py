# SPDX-License-Identifier: BSD-3-Clause
"""The gate between a build and the channel: a package is cleaned, audited, and refused for what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.audit.clean import clean_package
from channel_tools.audit.reading import Reader
from channel_tools.audit.run import audit_package, channel_packages
from channel_tools.audit.surroundings import Known, Neighbour, neighbours_in_cache, neighbours_in_files
from channel_tools.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.audit.model import Finding, PackageAudit

_SHOWN = 20


@dataclass(kw_only=True, slots=True)
class Gate:
    """Lets packages into ``channel``, where their run dependencies are; they must not name ``build_paths``.

    Packages of a foundation elsewhere are looked up in ``cache``, where the build's own environments came from.
    """

    channel: Path
    build_paths: tuple[str, ...]
    processes: int = 1
    cache: Path | None = None
    _known: dict[Path, Neighbour] = field(default_factory=dict)

    def admit(self, package: Path) -> PackageAudit:
        """Clean and audit a finished package; what its recipe declares is in the result.

        Raises VerificationError with all findings, IntegrityError for a damaged package.
        """
        clean_package(package)
        reader = Reader(build_paths=self.build_paths, processes=self.processes)
        audit = audit_package(package, Known(self._neighbours()), reader)
        if audit.findings:
            raise _refusal(package, audit)
        return audit

    def _neighbours(self) -> list[Neighbour]:
        present = channel_packages(self.channel)
        fresh = [path for path in present if path not in self._known]
        self._known |= {path: one for path in fresh for one in neighbours_in_files([path])}
        cached = [] if self.cache is None else list(neighbours_in_cache(self.cache))
        return [self._known[path] for path in present if path in self._known] + cached


def described(findings: Sequence[Finding]) -> str:
    """Findings as the lines of an error: where, what was found, what is expected, what mends it."""
    lines = [
        f"    {_place(finding)}: {finding.rule}: {finding.found}\n"
        f"        expected {finding.expected}\n        {finding.mend}"
        for finding in findings[:_SHOWN]
    ]
    if len(findings) > _SHOWN:
        lines.append(f"    and {len(findings) - _SHOWN} more")
    return "\n".join(lines)


def _place(finding: Finding) -> str:
    return " ".join(part for part in (f"{finding.package}:", finding.file, finding.where) if part).rstrip(":")


def _refusal(package: Path, audit: PackageAudit) -> VerificationError:
    message = f"{package.name}: {len(audit.findings)} findings of the audit; it was not taken into the channel\n"
    hint = f"mend the recipe as said above and build again; to see all of them: channel_tools audit {package}"
    return VerificationError(message + described(audit.findings), hint=hint)
