# SPDX-License-Identifier: BSD-3-Clause
"""Rules for a foundation beyond those for every package: depends, owner, leftover, metadata, glibc.

Any two packages with different names count as installable together, unless the constraints of one exclude the other.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from channel_tools.audit.model import Requirement, Rule
from channel_tools.audit.rules.loader import newest_release
from channel_tools.conda.package import split_file_name
from channel_tools.conda.specs import least_version, matches, read_spec, record_of, specs_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from channel_tools.audit.model import Dependencies, Finding, PackageFacts
    from channel_tools.conda.contents import PackageProblem

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
    """The package, or one of its dependencies, requires the glibc that its files need."""
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
