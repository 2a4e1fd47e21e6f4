# SPDX-License-Identifier: BSD-3-Clause
"""Audits package files and all packages of a channel: reads them in parallel, then applies the policy.

The gate is between a build and the channel: it reads a package once for both the audit and the channel, and keeps it
out if there are findings.
"""

from __future__ import annotations

import dataclasses
import functools
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from channel_tools.audit.dependencies import Known, neighbour_of, neighbours_in_cache, neighbours_in_files
from channel_tools.audit.model import AuditReport, PackageAudit
from channel_tools.audit.package import PackageReader
from channel_tools.audit.policy import PACKAGE_RULES, judge
from channel_tools.audit.reading import Reader
from channel_tools.conda.archive import PackageInfo, read_package, visit_package
from channel_tools.conda.metadata import PATCHABLE, check_place
from channel_tools.conda.package import OLD_SUFFIX, PACKAGE_SUFFIX, subdirs_of
from channel_tools.conda.repodata import INDEX_LIMIT_BYTES, REPODATA
from channel_tools.system.beneath import folder_beneath, folder_of
from channel_tools.system.counting import counted
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ChannelToolsError, IntegrityError, UsageError, VerificationError
from channel_tools.system.workers import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from channel_tools.audit.dependencies import Neighbour
    from channel_tools.audit.model import Dependencies, Finding, PackageFacts
    from channel_tools.audit.policy import RuleFunction
    from channel_tools.system.beneath import Beneath
    from channel_tools.system.progress import Progress

Result = TypeVar("Result")
_COMMON_PARTS = 3
_COMMON = frozenset({"usr", "opt", "var", "etc"})
_SHOWN = 20
_LISTS = ("packages", "packages.conda")
"""The keys of repodata.json that list the packages in the older format and in the newer one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """What was read from a package file; ``info`` only if it was read to be added to a channel and may be."""

    facts: PackageFacts
    seconds: float
    info: PackageInfo | None


def audit_package(path: Path, known: Known, reader: Reader, *, to_enter: bool = False) -> PackageAudit:
    """Audit one package file, with its run dependencies as far as ``known`` has them.

    With ``to_enter``, it is read as a channel reads a package that is to be added, and the audit has its ``info``.
    """
    return _audited(_read(path, reader=reader, to_enter=to_enter), known)


def audit_packages(
    packages: Sequence[Path],
    neighbours: Sequence[Neighbour],
    reader: Reader,
    *,
    jobs: int | None,
    progress: Progress,
    to_enter: bool = False,
    within: Path | None = None,
    corrections: Mapping[Path, Mapping[str, object]] | None = None,
    glibc: str | None = None,
) -> list[PackageAudit]:
    """Audit all packages, each with the others and ``neighbours`` as possible dependencies; by subdir and name.

    ``jobs`` processes read them; if None, this process reads one package after the other. With ``to_enter``, the
    audits have what a channel needs to know about the packages, ``corrections`` of them are as for read_package.
    Others can write in ``within``, where the packages are then. ``glibc`` is the oldest that they are to run on.
    """
    read = functools.partial(
        _read,
        reader=dataclasses.replace(reader, processes=1),
        to_enter=to_enter,
        within=within,
        corrections=corrections,
    )
    read_packages = (
        [read(path) for path in packages]
        if jobs is None
        else list(read_in_parallel(packages, read, jobs=jobs, progress=progress))
    )
    own = (neighbour_of(package.facts) for package in read_packages if package.facts.index)
    known = Known([*own, *neighbours], glibc=glibc)
    return sorted(
        (_audited(package, known) for package in read_packages), key=lambda audit: (audit.subdir, audit.package)
    )


def read_in_parallel(
    packages: Sequence[Path],
    read: Callable[[Path], Result],
    *,
    jobs: int,
    progress: Progress,
    title: str = "Auditing",
    error: type[ChannelToolsError] = ChannelToolsError,
) -> Iterator[Result]:
    """What ``read`` returns for each package file, in the order of completion.

    The largest are read first, so that none is left to run alone at the end. Raises ``error`` if a process was killed.
    """
    sizes = {path: path.stat().st_size for path in packages}
    largest_first = sorted(packages, key=lambda path: (-sizes[path], path))
    with progress.task(f"{title} packages", total=sum(sizes.values()), unit="bytes") as task:
        for path, result in run_in_processes(
            read, largest_first, processes=jobs, activity="read a package", error=error
        ):
            yield result
            task.advance(sizes[path], detail=path.name)


def audit_channel(
    folder: Path,
    reader: Reader,
    *,
    neighbours: Sequence[Neighbour] = (),
    jobs: int,
    progress: Progress,
    glibc: str | None = None,
) -> AuditReport:
    """The audit of every package file in the channel folder, which promises to run on ``glibc``.

    Raises UsageError if it has none.
    """
    packages = channel_packages(folder)
    if not packages:
        hint = "name a .conda file, a channel's folder or an environment"
        raise UsageError(f"{folder}: neither a channel with packages nor an environment", hint=hint)
    audits = audit_packages(packages, neighbours, reader, jobs=jobs, progress=progress, within=folder, glibc=glibc)
    return AuditReport(kind="channel", target=str(folder), packages=audits)


def channel_packages(folder: Path) -> list[Path]:
    """The package files that new solves of a channel see, by its repodata; all files if it has no repodata.

    Folders of any name count, and what an index takes for a subdir: a link inside the channel, too. Others may write
    in the folder: what is there is named beneath it. Raises as Beneath and subdirs_of.
    """
    files = folder_beneath(folder)
    packages: list[Path] = []
    folders = {name for name, status in files.stats() if stat.S_ISDIR(status.st_mode)}
    for subdir in sorted(folders.union(subdirs_of(files))):
        below = files.at(subdir)
        listed = _listed(below)
        for name, status in sorted(below.stats()):
            if name.endswith((PACKAGE_SUFFIX, OLD_SUFFIX)) and (listed is None or name in listed):
                if stat.S_ISDIR(status.st_mode):
                    continue
                if not stat.S_ISREG(status.st_mode):
                    below.file_stat(name)
                packages.append(folder / subdir / name)
    return packages


def channel_neighbours(folder: Path, packages: Sequence[Path]) -> Iterator[Neighbour]:
    """Neighbours from ``packages`` of a channel's folder, in which others may write, as its repodata corrects them."""
    files = folder_beneath(folder)
    rows = {subdir: _listed(files.at(subdir)) or {} for subdir in {path.parent.name for path in packages}}
    corrections = {
        path: {key: row.get(key) for key in PATCHABLE}
        for path in packages
        if isinstance(row := rows[path.parent.name].get(path.name), dict)
    }
    return neighbours_in_files(packages, within=folder, corrections=corrections)


def _listed(subdir: Beneath) -> dict[str, object] | None:
    """What a subdir's repodata has of each package, by its file's name; None if there is no repodata."""
    try:
        document = decode_json(subdir.read(REPODATA, limit_bytes=INDEX_LIMIT_BYTES))
    except (FileNotFoundError, ValueError):
        return None
    rows = (
        [document[key] for key in _LISTS if isinstance(document.get(key), dict)] if isinstance(document, dict) else []
    )
    return {name: row for listed in rows for name, row in listed.items()} if rows else None


def distinctive_paths(folders: Sequence[Path]) -> tuple[str, ...]:
    """Folders of this machine as files would name them, without those that files may legitimately name (``/opt/x``)."""
    spellings = {str(path) for folder in folders for path in (folder.absolute(), folder.resolve())}
    distinctive = sorted(path for path in spellings if _is_distinctive(Path(path)))
    return tuple(path for path in distinctive if not any(path.startswith(other + "/") for other in distinctive))


def _is_distinctive(folder: Path) -> bool:
    return len(folder.parts) > _COMMON_PARTS or (len(folder.parts) == _COMMON_PARTS and folder.parts[1] not in _COMMON)


def _read(
    path: Path,
    *,
    reader: Reader,
    to_enter: bool,
    within: Path | None = None,
    corrections: Mapping[Path, Mapping[str, object]] | None = None,
) -> _Reading:
    started = time.monotonic()
    visitor = PackageReader(path, reader)
    info = damage = None
    folder = folder_of(path, within)
    try:
        if to_enter:
            correction = (corrections or {}).get(path)
            read = read_package(path, contents=True, visitor=visitor, folder=folder, correction=correction)
            check_place(read.index, path, path.parent.name)
            info = read
        else:
            visit_package(path, visitor, folder=folder)
    except IntegrityError as err:
        damage = err
    return _Reading(facts=visitor.facts(damage), seconds=time.monotonic() - started, info=info)


def _audited(read: _Reading, known: Known) -> PackageAudit:
    audit = audit_facts(read.facts, known.dependencies_of(read.facts), PACKAGE_RULES, read.seconds)
    return dataclasses.replace(audit, info=read.info)


def audit_facts(
    facts: PackageFacts, dependencies: Dependencies, rules: Sequence[RuleFunction], seconds: float
) -> PackageAudit:
    """The audit of a package from its facts; ``seconds`` is the time that reading took."""
    findings, excused = judge(facts, dependencies, rules)
    return PackageAudit(
        package=facts.file_name,
        subdir=facts.subdir,
        files=len(facts.files),
        elf_files=sum(file.elf is not None for file in facts.files.values()),
        seconds=seconds,
        findings=findings,
        excused=excused,
    )


@dataclass(kw_only=True, slots=True)
class Gate:
    """Admits packages to ``channel``, which has their run dependencies; they must not name ``build_paths``.

    Packages of a foundation elsewhere are looked up in ``cache``, which the build's own environments came from.
    ``glibc`` is the oldest that the channel promises to run on; None if it promises none.
    """

    channel: Path
    build_paths: tuple[str, ...]
    processes: int = 1
    cache: Path | None = None
    glibc: str | None = None
    _known: dict[Path, Neighbour] = field(default_factory=dict)
    _seen: set[Path] = field(default_factory=set)

    def admit(self, package: Path) -> PackageAudit:
        """Audit a finished package. The result has the declared findings and what the channel needs to know.

        Raises VerificationError with all findings that keep it out, IntegrityError for a damaged package.
        """
        reader = Reader(build_paths=self.build_paths, processes=self.processes)
        audit = audit_package(package, Known(self._neighbours(), glibc=self.glibc), reader, to_enter=True)
        if audit.barring:
            count = counted(len(audit.barring), "finding")
            message = f"{package.name}: the audit has {count}; it was not added to the channel\n"
            hint = f"correct the recipe as described and build again; to see all of them: channel_tools audit {package}"
            raise VerificationError(message + describe_findings(audit.barring), hint=hint)
        return audit

    def _neighbours(self) -> list[Neighbour]:
        present = channel_packages(self.channel)
        fresh = [path for path in present if path not in self._seen]
        self._known |= {
            self.channel / one.subdir / one.file_name: one for one in channel_neighbours(self.channel, fresh)
        }
        self._seen.update(fresh)
        cached = [] if self.cache is None else list(neighbours_in_cache(self.cache))
        return [self._known[path] for path in present if path in self._known] + cached


def describe_findings(findings: Sequence[Finding]) -> str:
    """Findings as the lines of an error message: where, what was found, what is expected, how to fix it."""
    lines = [
        f"    {_position(finding)}: {finding.rule}: {finding.found}\n"
        f"        expected {finding.expected}\n        {finding.fix}"
        for finding in findings[:_SHOWN]
    ]
    if len(findings) > _SHOWN:
        lines.append(f"    and {len(findings) - _SHOWN} more")
    return "\n".join(lines)


def _position(finding: Finding) -> str:
    return " ".join(part for part in (f"{finding.package}:", finding.file, finding.where) if part).rstrip(":")
