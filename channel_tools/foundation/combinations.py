# SPDX-License-Identifier: BSD-3-Clause
"""Pythons and PyTorches besides the table's own: what a combination of them adds to a foundation. Pure except for pip.

Each combination is a set of wheels that pip resolves separately. Debian's packages, and wheels for every Python if
their version is compatible, are those of the table: only packages for that Python or that PyTorch are made here, so
that a combination does not change the rest of the foundation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.version import Version

from channel_tools.conda.metadata import subdir_of
from channel_tools.foundation.model import Combination, Entry
from channel_tools.foundation.plan import PackagePlan, plan_packages, project_of
from channel_tools.foundation.table import PYTHON
from channel_tools.foundation.wheel import is_pure_wheel
from channel_tools.system.errors import FoundationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.foundation.downloads import LockedArtifacts, Sources
    from channel_tools.foundation.model import LockedArtifact
    from channel_tools.foundation.record import FoundationRecord
    from channel_tools.foundation.table import FoundationTable

PYTHON_ABI = "python_abi"
_TORCH = "torch"


def table_of(table: FoundationTable, combination: Combination) -> FoundationTable:
    """The table for a combination: Debian's rows, those that combinations make again, and optional wheels' rows.

    Of what is asked for, it asks for Debian's rows alone, which its wheels may need. Another Python is not in it: a
    recipe makes that package.
    """
    entries = [
        _entry_of(entry, combination)
        for entry in table.entries
        if not entry.wheels or entry.optional or entry.name in table.combined
    ]
    if combination.python != table.python:
        entries = [
            _abi_of(entry, combination.python) if entry.name == PYTHON_ABI else entry
            for entry in entries
            if entry.name != PYTHON
        ]
    asked = frozenset(entry.name for entry in entries if entry.name in table.asked and not entry.wheels)
    return replace(table, python=combination.python, entries=tuple(entries), asked=asked)


def _entry_of(entry: Entry, combination: Combination) -> Entry:
    wheels = tuple(f"{_TORCH}=={combination.pytorch}" if project_of(text) == _TORCH else text for text in entry.wheels)
    return replace(entry, wheels=wheels)


def _abi_of(entry: Entry, python: str) -> Entry:
    """The package for the ABI of extension modules, as conda-forge has it for that Python."""
    tag = f"cp{python.replace('.', '')}"
    return replace(entry, version=python, build=f"{{hash}}_{tag}", constrains=(f"{PYTHON} {python}.* *_{tag}",))


def resolve_combinations(
    table: FoundationTable,
    base: LockedArtifacts,
    known: FoundationRecord | None,
    sources: Sources,
    *,
    locked: bool,
) -> dict[Combination, LockedArtifacts]:
    """The wheels of each requested combination: those recorded in ``known``, if any; ``base`` are the table's own.

    With ``locked``, no others may be used. Raises what resolving the table's own wheels does.
    """
    recorded = {combination.name: combination.taken for combination in known.combinations} if known else {}
    by_combination: dict[Combination, LockedArtifacts] = {}
    for combination in table.asked_combinations:
        wheels = recorded.get(combination.name)
        if wheels is None and locked:
            message = f"the lock has no entry for: {combination}"
            raise FoundationError(message, hint="make a new lock: channel_tools foundation build --update")
        if wheels is None:
            sources.reach(f"the versions of the wheels for {combination}")
            own = table_of(table, combination)
            entries = [entry for entry in own.entries if not own.is_optional(entry)]
            roots = sorted({text for entry in entries for text in entry.wheels})
            resolved = replace(sources.pip, python=combination.python).resolve(roots)
            wheels = tuple(_with_known(resolved, base, same_python=combination.python == table.python))
        by_combination[combination] = {("wheel", wheel.name): wheel for wheel in wheels}
    return by_combination


def _with_known(
    resolved: Sequence[LockedArtifact], base: LockedArtifacts, *, same_python: bool
) -> list[LockedArtifact]:
    """The wheels that pip found, each replaced by the version in ``base`` if that is allowed here, too."""
    wanted: dict[str, list[Requirement]] = {}
    for wheel in resolved:
        for text in wheel.requires:
            wanted.setdefault(project_of(text), []).append(Requirement(text))

    def usable(wheel: LockedArtifact) -> bool:
        version = Version(wheel.version)
        return (same_python or is_pure_wheel(wheel.file_name)) and all(
            requirement.specifier.contains(version, prereleases=True) for requirement in wanted.get(wheel.name, ())
        )

    def choose(wheel: LockedArtifact) -> LockedArtifact:
        known = base.get(("wheel", wheel.name))
        return known if known is not None and wheel.name != _TORCH and usable(known) else wheel

    return [choose(wheel) for wheel in resolved]


def plan_combinations(
    table: FoundationTable,
    wheels_of: Mapping[Combination, LockedArtifacts],
    base: LockedArtifacts,
    planned: Sequence[PackagePlan],
    *,
    subdir: str,
    code_of: Callable[[Entry], str],
) -> list[PackagePlan]:
    """What combinations add to the table's ``planned`` packages, each once. Raises what plan_packages does."""
    debs = {key: file for key, file in base.items() if key[0] == "deb"}
    own = {plan.entry.name for plan in planned}
    by_file_name = {plan.file_name: plan for plan in planned}
    same = {_content(plan) for plan in planned}
    for combination, wheels in wheels_of.items():
        plans = plan_packages(table_of(table, combination), {**debs, **wheels}, subdir=subdir, code_of=code_of)
        for plan in plans:
            is_ours = plan.entry.wheels or plan.entry.name not in own or plan.entry.name in table.combined
            if is_ours and plan.file_name not in by_file_name and _content(plan) not in same:
                by_file_name[plan.file_name] = replace(plan, combination=combination)
                same.add(_content(plan))
    return [plan for plan in by_file_name.values() if plan.combination is not None]


def _content(plan: PackagePlan) -> object:
    """The part of a plan that is the same in all combinations for a package that supports every Python."""
    if plan.is_noarch_python or not plan.taken:
        return plan.entry.name, plan.version, plan.taken
    return plan.file_name


def given_python(path: Path, index: Mapping[str, Any], minor: str, combination: Combination | None) -> PackagePlan:
    """The plan for a Python that a recipe made, which is used unchanged: ``path`` and its index.json.

    ``combination`` is what needs it, None for the table itself.
    """
    version, build = str(index["version"]), str(index["build"])
    if not f"{version}.".startswith(f"{minor}."):
        raise FoundationError(f"{path} is Python {version}, but {combination or 'the table'} needs {minor}")
    return PackagePlan(
        entry=Entry(name=PYTHON, line=0),
        version=version,
        build=build,
        subdir=subdir_of(index) or path.parent.name,
        holds_bytecode=True,
        depends=tuple(index.get("depends", ())),
        combination=combination,
    )
