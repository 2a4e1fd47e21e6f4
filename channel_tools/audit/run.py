# SPDX-License-Identifier: BSD-3-Clause
"""Audits of package files and of all packages of a channel: reading in parallel, then the policy."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.audit.model import AuditReport, PackageAudit
from channel_tools.audit.package import read_package_facts
from channel_tools.audit.policy import PACKAGE_RULES, judge
from channel_tools.audit.surroundings import Known, neighbour_of
from channel_tools.errors import UsageError
from channel_tools.pool import run_in_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.audit.facts import PackageFacts, Surroundings
    from channel_tools.audit.policy import RuleFunction
    from channel_tools.audit.reading import Reader
    from channel_tools.audit.surroundings import Neighbour
    from channel_tools.progress import Progress

_COMMON_PARTS = 3
_COMMON = frozenset({"usr", "opt", "var", "etc"})


def audit_package(path: Path, known: Known, reader: Reader) -> PackageAudit:
    """Read and judge one package file, with what ``known`` has of its run dependencies."""
    started = time.monotonic()
    facts = read_package_facts(path, reader)
    return _audited(facts, known, time.monotonic() - started)


def audit_packages(
    packages: Sequence[Path], neighbours: Sequence[Neighbour], reader: Reader, *, jobs: int, progress: Progress
) -> list[PackageAudit]:
    """Read all packages, ``jobs`` at once, and judge each among the others and ``neighbours``; by subdir and name."""
    sizes = {path: path.stat().st_size for path in packages}
    largest_first = sorted(packages, key=lambda path: (-sizes[path], path))
    alone = dataclasses.replace(reader, processes=1)
    read = functools.partial(_timed_facts, reader=alone)
    found: list[tuple[PackageFacts, float]] = []
    with progress.task("Auditing packages", total=sum(sizes.values()), unit="bytes") as task:
        for path, facts in run_in_processes(read, largest_first, processes=jobs, what="read a package"):
            found.append(facts)
            task.advance(sizes[path], detail=path.name)
    known = Known([*(neighbour_of(facts) for facts, _seconds in found if facts.index), *neighbours])
    audits = [_audited(facts, known, seconds) for facts, seconds in found]
    return sorted(audits, key=lambda audit: (audit.subdir, audit.package))


def audit_channel(
    folder: Path, reader: Reader, *, neighbours: Sequence[Neighbour] = (), jobs: int, progress: Progress
) -> AuditReport:
    """The audit of every package file in the channel folder. Raises UsageError when it has none."""
    packages = channel_packages(folder)
    if not packages:
        hint = "name a .conda file, a channel's folder or an environment"
        raise UsageError(f"{folder}: neither a channel with packages nor an environment", hint=hint)
    audits = audit_packages(packages, neighbours, reader, jobs=jobs, progress=progress)
    return AuditReport(kind="channel", target=str(folder), packages=audits)


def channel_packages(folder: Path) -> list[Path]:
    """The package files that new solves of a channel see, by its repodata; all that lie there where it has none."""
    found: list[Path] = []
    for subdir in sorted(path for path in folder.glob("*") if path.is_dir()):
        listed = _listed(subdir / "repodata.json")
        found += [path for path in sorted(subdir.glob("*.conda")) if listed is None or path.name in listed]
    return found


def _listed(repodata: Path) -> frozenset[str] | None:
    try:
        rows = json.loads(repodata.read_bytes())["packages.conda"]
    except (OSError, ValueError, KeyError):
        return None
    return frozenset(rows)


def telling_paths(folders: Sequence[Path]) -> tuple[str, ...]:
    """Folders of this machine as files would name them; those that files may well mention (``/opt/x``) left out."""
    spellings = {str(path) for folder in folders for path in (folder.absolute(), folder.resolve())}
    telling = sorted(path for path in spellings if _is_telling(Path(path)))
    return tuple(path for path in telling if not any(path.startswith(other + "/") for other in telling))


def _is_telling(folder: Path) -> bool:
    return len(folder.parts) > _COMMON_PARTS or (len(folder.parts) == _COMMON_PARTS and folder.parts[1] not in _COMMON)


def _timed_facts(path: Path, *, reader: Reader) -> tuple[PackageFacts, float]:
    started = time.monotonic()
    return read_package_facts(path, reader), time.monotonic() - started


def _audited(facts: PackageFacts, known: Known, seconds: float) -> PackageAudit:
    return judged(facts, known.around(facts), PACKAGE_RULES, seconds)


def judged(facts: PackageFacts, around: Surroundings, rules: Sequence[RuleFunction], seconds: float) -> PackageAudit:
    """The audit of a package from its facts; ``seconds`` is what reading it took."""
    findings, excused = judge(facts, around, rules)
    return PackageAudit(
        package=facts.file_name,
        subdir=facts.subdir,
        files=len(facts.files),
        elf_files=sum(file.elf is not None for file in facts.files.values()),
        seconds=seconds,
        findings=findings,
        excused=excused,
    )
