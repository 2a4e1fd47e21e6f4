# SPDX-License-Identifier: BSD-3-Clause
"""The audit of a whole foundation, which proves that it is closed.

Packages are read in parallel, each once; the rules that concern several packages use what was read.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from dataclasses import dataclass
from multiprocessing import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.audit.dependencies import Known, neighbour_of
from channel_tools.audit.model import FileFacts
from channel_tools.audit.package import PackageReader
from channel_tools.audit.policy import FOUNDATION_RULES
from channel_tools.audit.reading import Reader
from channel_tools.audit.rules.foundation import contents_rule, identity_rule, owner_rule
from channel_tools.audit.run import distinctive_paths, read_in_parallel
from channel_tools.conda.archive import visit_package
from channel_tools.conda.closure import place_installed, python_minor
from channel_tools.system.beneath import folder_of
from channel_tools.system.errors import FoundationError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.audit.model import Finding, PackageFacts
    from channel_tools.conda.contents import PackageProblem
    from channel_tools.system.progress import Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationPackage:
    """What was read from one package file; ``subdir`` is the subdir that it is in."""

    subdir: str
    facts: PackageFacts
    problems: tuple[PackageProblem, ...]


def verify_foundation(
    channel_folder: Path,
    *,
    progress: Progress,
    jobs: int | None = None,
    build_folders: Sequence[Path] = (),
) -> list[Finding]:
    """Read every package below ``channel_folder`` and return the findings, sorted; none proves that it is closed.

    ``jobs`` processes read (None: one per core). No package may name ``build_folders``, the channel folder or the
    environment that this program runs in. Raises FoundationError if there are no packages.
    """
    packages = sorted(channel_folder.glob("*/*.conda"))
    if not packages:
        hint = "make it with: channel_tools foundation build"
        raise FoundationError(f"{channel_folder}: no package in any subdir", hint=hint)
    read = functools.partial(
        read_foundation_package,
        build_paths=distinctive_paths([channel_folder, Path(sys.prefix), *build_folders]),
        within=channel_folder,
    )
    results = read_in_parallel(
        packages, read, jobs=jobs or cpu_count(), progress=progress, title="Verifying", error=FoundationError
    )
    return judge_foundation(list(results))


def read_foundation_package(path: Path, build_paths: Sequence[str], *, within: Path | None = None) -> FoundationPackage:
    """Read a whole package, in a worker process; if it is damaged, reading ends and the damage is recorded.

    ``build_paths`` are folders of this machine that no file of a package may name. Others can write in ``within``,
    where the package is then.
    """
    visitor = PackageReader(path, Reader(build_paths=tuple(build_paths), reads_code=False, reads_leftovers=True))
    problems: list[PackageProblem] = []
    damage = None
    try:
        visit_package(path, visitor, on_problem=problems.append, folder=folder_of(path, within))
    except IntegrityError as err:
        damage = err
    return FoundationPackage(subdir=path.parent.name, facts=visitor.facts(damage), problems=tuple(problems))


def judge_foundation(packages: Sequence[FoundationPackage]) -> list[Finding]:
    """The findings about the packages of a foundation, each by itself and all together; sorted."""
    ordered = sorted(packages, key=lambda package: (package.subdir, package.facts.file_name))
    python = python_minor(
        str(package.facts.index.get("version")) for package in ordered if package.facts.name == "python"
    )
    installed = [(package.subdir, _installed(package.facts, python)) for package in ordered if package.facts.index]
    known = Known(neighbour_of(facts) for _subdir, facts in installed)
    findings = {finding for package in ordered for finding in contents_rule(package.facts, package.problems)}
    findings |= {
        finding
        for package in ordered
        if package.facts.index
        for finding in identity_rule(package.facts, package.subdir)
    }
    for facts in [
        *(facts for _subdir, facts in installed),
        *(package.facts for package in ordered if not package.facts.index),
    ]:
        dependencies = known.dependencies_of(facts)
        findings |= {finding for rule in FOUNDATION_RULES for finding in rule(facts, dependencies)}
    return sorted(findings | set(owner_rule(installed)))


def _installed(facts: PackageFacts, python: str) -> PackageFacts:
    """A noarch python package with the paths that it has once installed; other packages unchanged."""
    if facts.index.get("noarch") != "python":
        return facts
    placed = {place_installed(path, python): file for path, file in facts.files.items()}
    programs = {f"bin/{line.partition('=')[0].strip()}" for line in facts.entry_points}
    files = placed | {path: FileFacts(path=path, kind="file", mode=0o755) for path in programs}
    return dataclasses.replace(
        facts, files={path: dataclasses.replace(file, path=path) for path, file in files.items()}
    )
