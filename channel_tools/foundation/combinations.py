# SPDX-License-Identifier: BSD-3-Clause
"""Pythons and PyTorches beside the table's own: what a combination of the two adds to a foundation. Pure but for pip.

Each combination is a set of wheels that pip resolves by itself. Debian's packages, and wheels for every Python where
the version at hand will do, are those of the table: what is made here is what is for that Python or that PyTorch alone,
so that a combination changes nothing that is there without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import Version

from channel_tools.foundation.model import Combination, Entry
from channel_tools.foundation.plan import PYTHON, PackagePlan, plan_packages, project_of
from channel_tools.foundation.wheel import is_pure_wheel
from channel_tools.system.errors import FoundationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.foundation.acquire import LockedArtifacts, Sources
    from channel_tools.foundation.model import LockedArtifact
    from channel_tools.foundation.record import FoundationRecord
    from channel_tools.foundation.table import FoundationTable

PYTHON_ABI = "python_abi"
_TORCH = "torch"


def table_of(table: FoundationTable, combination: Combination) -> FoundationTable:
    """The table for a combination: Debian's rows, those that combinations make anew, and optional wheels' rows.

    Another Python is not in it: it comes as a package that a recipe made.
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
    return replace(table, python=combination.python, entries=tuple(entries), asked=frozenset())


def _entry_of(entry: Entry, combination: Combination) -> Entry:
    wheels = tuple(f"{_TORCH}=={combination.pytorch}" if project_of(text) == _TORCH else text for text in entry.wheels)
    return replace(entry, wheels=wheels)


def _abi_of(entry: Entry, python: str) -> Entry:
    """The package that says which ABI extension modules have, as conda-forge's for that Python."""
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
    """The wheels of each combination asked for, as ``known`` recorded them where it did; ``base`` are the table's own.

    ``locked``: no others may be taken. Raises as the resolution of the table's own wheels.
    """
    recorded = {one.name: one.taken for one in known.combinations} if known else {}
    found: dict[Combination, LockedArtifacts] = {}
    for combination in table.asked_combinations:
        wheels = recorded.get(combination.name)
        if wheels is None and locked:
            message = f"the lock has no entry for: {combination}"
            raise FoundationError(message, hint="make a new lock: channel_tools foundation build --update")
        if wheels is None:
            sources.reach(f"the versions of the wheels for {combination}")
            entries = [entry for entry in table_of(table, combination).entries if not entry.optional]
            roots = sorted({text for entry in entries for text in entry.wheels})
            resolved = replace(sources.pip, python=combination.python).resolve(roots)
            wheels = tuple(_with_known(resolved, base, same_python=combination.python == table.python))
        found[combination] = {("wheel", wheel.name): wheel for wheel in wheels}
    return found


def _with_known(
    resolved: Sequence[LockedArtifact], base: LockedArtifacts, *, same_python: bool
) -> list[LockedArtifact]:
    """The wheels that pip found, each replaced by the version that ``base`` has wherever that is allowed here, too."""
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
    taken: Mapping[Combination, LockedArtifacts],
    base: LockedArtifacts,
    planned: Sequence[PackagePlan],
    *,
    subdir: str,
    code_of: Callable[[Entry], str],
) -> list[PackagePlan]:
    """What combinations add to the packages ``planned`` of the table itself, each once. Raises as plan_packages."""
    debs = {key: file for key, file in base.items() if key[0] == "deb"}
    own = {plan.entry.name for plan in planned}
    found = {plan.file_name: plan for plan in planned}
    same = {_content(plan) for plan in planned}
    for combination, wheels in taken.items():
        plans = plan_packages(table_of(table, combination), {**debs, **wheels}, subdir=subdir, code_of=code_of)
        for plan in plans:
            is_ours = plan.entry.wheels or plan.entry.name not in own or plan.entry.name in table.combined
            if is_ours and plan.file_name not in found and _content(plan) not in same:
                found[plan.file_name] = replace(plan, combination=combination)
                same.add(_content(plan))
    return [plan for plan in found.values() if plan.combination is not None]


def _content(plan: PackagePlan) -> object:
    """What is the same in a package that serves every Python, of whichever combination its plan is."""
    if plan.is_noarch_python or not plan.taken:
        return plan.entry.name, plan.version, plan.taken
    return plan.file_name


def given_python(path: Path, index: Mapping[str, object], combination: Combination) -> PackagePlan:
    """The plan of a Python that a recipe made, which is taken as it is: ``path`` and its index.json."""
    version, build = str(index["version"]), str(index["build"])
    if not f"{version}.".startswith(f"{combination.python}."):
        raise FoundationError(f"{path} is Python {version}, and {combination} wants {combination.python}")
    return PackagePlan(
        entry=Entry(name=PYTHON, line=0),
        version=version,
        build=build,
        subdir=str(index["subdir"]),
        holds_bytecode=True,
        combination=combination,
    )
