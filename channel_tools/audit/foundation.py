# SPDX-License-Identifier: BSD-3-Clause
"""The audit of a whole foundation, which proves that it is closed.

Packages are read in parallel, each once; the rules that concern several packages use what was read.

Rules for a foundation beyond those for every package: depends, owner, leftover, metadata, glibc.

Any two packages with different names count as installable together, unless the constraints of one exclude the other.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.audit.dependencies import Known, neighbour_of
from channel_tools.audit.model import FileFacts, Requirement, Rule
from channel_tools.audit.package import PackageReader
from channel_tools.audit.reading import Reader
from channel_tools.audit.rules import files, loader
from channel_tools.audit.rules.loader import base_violations, newest_release
from channel_tools.audit.run import distinctive_paths, read_in_parallel
from channel_tools.conda.archive import visit_package
from channel_tools.conda.closure import place_installed, python_minor
from channel_tools.conda.package import split_file_name
from channel_tools.conda.specs import least_version, matches, read_spec, record_of, specs_on
from channel_tools.system.beneath import folder_of
from channel_tools.system.errors import FoundationError, IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.audit.model import Dependencies, Finding, PackageFacts
    from channel_tools.audit.policy import RuleFunction
    from channel_tools.conda.contents import PackageProblem
    from channel_tools.system.progress import Progress

_INDEX = "info/index.json"
_FIX = "correct the table's row or its repair step, then foundation build"
_PACKAGE = Requirement(rule=Rule.PACKAGE, expected="files and links that are safe to unpack", fix=_FIX)
_METADATA = Requirement(
    rule=Rule.METADATA, expected="agreement of index.json, paths.json, the file name and the content", fix=_FIX
)
_DEPENDS = Requirement(rule=Rule.DEPENDS, expected="each requirement satisfied by a package of the channel", fix=_FIX)
_OWNER = Requirement(rule=Rule.OWNER, expected="each path in one package only", fix=_FIX)
_GLIBC = Requirement(rule=Rule.GLIBC, expected="the glibc that its files need among the requirements", fix=_FIX)
_LEFTOVER = Requirement(rule=Rule.LEFTOVER, expected="no path of the machine that made it, nor below /usr", fix=_FIX)


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
    glibc: str | None = None,
) -> list[Finding]:
    """Read every package below ``channel_folder`` and return the findings, sorted; none proves that it is closed.

    ``jobs`` processes read (None: one per core). No package may name ``build_folders``, the channel folder or the
    environment that this program runs in. ``glibc`` is the oldest that they are to run on. Raises FoundationError if
    there are no packages.
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
    return judge_foundation(list(results), glibc=glibc)


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


def judge_foundation(packages: Sequence[FoundationPackage], *, glibc: str | None = None) -> list[Finding]:
    """The findings about the packages of a foundation, each by itself and all together; sorted.

    ``glibc`` is the oldest that they are to run on.
    """
    ordered = sorted(packages, key=lambda package: (package.subdir, package.facts.file_name))
    python = python_minor(
        str(package.facts.index.get("version")) for package in ordered if package.facts.name == "python"
    )
    installed = [(package.subdir, _installed(package.facts, python)) for package in ordered if package.facts.index]
    known = Known((neighbour_of(facts) for _subdir, facts in installed), glibc=glibc)
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
        findings |= {finding for rule in _RULES for finding in rule(facts, dependencies)}
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


def identity_rule(package: PackageFacts, subdir: str) -> Iterator[Finding]:
    """index.json agrees with the file name and with the ``subdir`` that the file is in."""
    stated = tuple(str(package.index.get(key)) for key in ("name", "version", "build"))
    if stated != split_file_name(package.file_name):
        problem = f"index.json says {'-'.join(stated)}, but the file is named {package.file_name}"
        yield _METADATA.violation(package.file_name, _INDEX, problem)
    if package.index.get("subdir") != subdir:
        problem = f"index.json says subdir {package.index.get('subdir')}, but the file is in {subdir}"
        yield _METADATA.violation(package.file_name, _INDEX, problem)


def contents_rule(package: PackageFacts, problems: Sequence[PackageProblem]) -> Iterator[Finding]:
    """Every member is safe and matches paths.json; the targets of links are left to the link rule."""
    links = {path for path, file in package.files.items() if file.kind == "link"}
    for problem in problems:
        if problem.kind == "mismatch":
            yield _METADATA.violation(package.file_name, problem.file, problem.text)
        elif problem.file not in links:
            yield _PACKAGE.violation(package.file_name, problem.file, problem.text)


def depends_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """A package of the channel satisfies each requirement."""
    for problem in dependencies.unresolved:
        yield _DEPENDS.violation(package.file_name, _INDEX, problem)


def closure_glibc_rule(package: PackageFacts, dependencies: Dependencies) -> Iterator[Finding]:
    """The package, or one of its dependencies, requires the glibc that its files need, and the base has it."""
    yield from base_violations(package, dependencies)
    newest = newest_release(package, "glibc")
    if newest is None:
        return
    stated = specs_on({"__glibc"}, dependencies.depends)
    if not any(least_version(spec) >= newest[1].release for spec in stated):
        text = ".".join(str(part) for part in newest[1].release)
        problem = f"its files need glibc {text}; neither it nor its dependencies require __glibc >={text}"
        yield _GLIBC.violation(package.file_name, "", problem)


def leftover_rule(package: PackageFacts, _dependencies: Dependencies) -> Iterator[Finding]:
    """No file names a folder of this machine, and none that controls builds or programs names a host path."""
    for path, file in package.files.items():
        for occurrence in file.build_paths:
            problem = f"names {occurrence.text}, a folder of the machine that made it"
            yield _LEFTOVER.violation(package.file_name, path, problem)
        for occurrence in file.leftovers:
            yield _LEFTOVER.violation(package.file_name, path, f"{occurrence.where} names {occurrence.text}")


def owner_rule(packages: Sequence[tuple[str, PackageFacts]]) -> Iterator[Finding]:
    """No installed path belongs to two of ``packages`` (each with its subdir)."""
    owners: defaultdict[str, list[tuple[str, PackageFacts]]] = defaultdict(list)
    for subdir, package in packages:
        for path in package.files:
            owners[path].append((subdir, package))
    for path, held in owners.items():
        for number, (subdir, other) in enumerate(held):
            for first_subdir, first in held[:number]:
                shared = subdir == first_subdir or "noarch" in {subdir, first_subdir}
                if other.name != first.name and shared and not (_excludes(first, other) or _excludes(other, first)):
                    yield _OWNER.violation(other.file_name, path, f"also belongs to {first.file_name}")
                    break


def _excludes(package: PackageFacts, other: PackageFacts) -> bool:
    """Whether a constraint of the package leaves no environment that has the other, too."""
    specs = specs_on({other.name}, package.constrains)
    record = record_of(other.index, name=other.name, subdir=other.subdir) if specs else None
    return record is not None and any(not matches(read_spec(spec), record) for spec in specs)


_RULES: tuple[RuleFunction, ...] = (
    files.package_rule,
    loader.elf_rule,
    loader.rpath_rule,
    loader.needed_rule,
    files.link_rule,
    depends_rule,
    closure_glibc_rule,
    loader.libstdcxx_rule,
    leftover_rule,
)
"""The rules that ``foundation verify`` applies to each package; it has more for all of them together."""
