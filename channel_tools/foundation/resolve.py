# SPDX-License-Identifier: BSD-3-Clause
"""Resolves which .debs and wheels a table needs.

Files in a record are reused, so that a changed row changes one package and not all; apt and pip are asked for new
names, for an update, or if a recorded version is no longer available. A lock is a record that must be followed exactly.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from channel_tools.foundation.apt import OTHER_FOUNDATION
from channel_tools.foundation.downloads import some_names
from channel_tools.foundation.model import deb_name, reachable
from channel_tools.foundation.plan import project_of
from channel_tools.system.counting import counted
from channel_tools.system.errors import FoundationError, NetworkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.foundation.downloads import LockedArtifacts, Sources
    from channel_tools.foundation.model import Entry, LockedArtifact
    from channel_tools.foundation.record import FoundationRecord
    from channel_tools.foundation.table import FoundationTable


def wheel_requirements(table: FoundationTable) -> tuple[str, ...]:
    """The requirements for pip of the rows that are always made."""
    always = [entry for entry in table.entries if not table.is_optional(entry)]
    return tuple(sorted({requirement for entry in always for requirement in entry.wheels}))


def optional_requirements(table: FoundationTable) -> tuple[str, ...]:
    """The additional requirements for pip of the optional rows to make."""
    optional = [entry for entry in table.wanted if table.is_optional(entry)]
    return tuple(sorted({requirement for entry in optional for requirement in entry.wheels}))


def resolve(
    table: FoundationTable,
    known: FoundationRecord | None,
    sources: Sources,
    *,
    resolved: Mapping[tuple[str, str], LockedArtifact] = MappingProxyType({}),
) -> LockedArtifacts:
    """The file for every deb and wheel of ``table``: the one recorded in ``known``, if there is one.

    ``resolved`` are files that were found for fewer rows of the same table, and are kept.

    Raises FoundationError naming the row if there is no such package, and for a wheel that does not go with those
    recorded; NetworkError if that cannot be determined.
    """
    recorded = {**(known.artifacts() if known else {}), **resolved}
    debs = _deb_rows(table)
    artifacts = {("deb", name): recorded["deb", name] for name in debs if ("deb", name) in recorded}
    unknown = {name: entry for name, entry in debs.items() if ("deb", name) not in artifacts}
    artifacts |= _find_debs(unknown, sources, table.suite)
    requirements = wheel_requirements(table)
    earlier = requirements if resolved else known.requirements if known is not None else ()
    if earlier and set(earlier) <= set(requirements):
        artifacts |= {key: file for key, file in recorded.items() if key[0] == "wheel"}
    elif requirements:
        earlier = requirements
        sources.reach(f"the versions of {counted(len(requirements), 'wheel')} ({some_names(requirements)})")
        artifacts |= {("wheel", wheel.name): wheel for wheel in sources.pip.resolve(requirements)}
    more = (*(text for text in requirements if text not in earlier), *optional_requirements(table))
    return artifacts | _find_more_wheels(more, recorded, artifacts, sources)


def _find_more_wheels(
    asked: Sequence[str], recorded: LockedArtifacts, known: LockedArtifacts, sources: Sources
) -> LockedArtifacts:
    """The wheels of optional and of new rows, compatible with those in ``known``, which stay as they are.

    A recorded one is used again with what it requires. PyTorch's wheel may require one.
    """
    again = {("wheel", project) for project in _needed_projects(asked, recorded)} & recorded.keys()
    reused = {key: recorded[key] for key in again - known.keys()}
    missing = [text for text in asked if ("wheel", project_of(text)) not in known | reused]
    if missing:
        sources.reach(f"the versions of {counted(len(missing), 'wheel')} ({some_names(missing)})")
        added = {("wheel", wheel.name): wheel for wheel in sources.pip.resolve(missing)}
        _check_fits(added, known | reused)
        reused = added | reused
    return {key: file for key, file in reused.items() if key not in known}


def _check_fits(added: LockedArtifacts, locked: LockedArtifacts) -> None:
    """Raise FoundationError for a requirement of an added wheel that the version kept of another does not meet."""
    for key, wheel in added.items():
        for text in wheel.requires if key not in locked else ():
            requirement = Requirement(text)
            other = locked.get(("wheel", project_of(text)))
            if other is not None and not requirement.specifier.contains(other.version, prereleases=True):
                message = f"{wheel.name} {wheel.version} requires {text}, but the foundation has {other.version} of it"
                raise FoundationError(
                    message, hint="take the newest versions of all: channel_tools foundation build --update"
                )


def resolve_locked(table: FoundationTable, lock: FoundationRecord) -> LockedArtifacts:
    """The files in ``lock`` for ``table``. Raises FoundationError if the lock lacks one that the table needs."""
    locked = lock.artifacts()
    debs = _deb_rows(table).items()
    lacking = [f"deb {name} of {entry.position}" for name, entry in debs if ("deb", name) not in locked]
    wheels = (*wheel_requirements(table), *optional_requirements(table))
    needed = _needed_projects(wheels, locked)
    lacking += [f"wheel {project}" for project in sorted(needed) if ("wheel", project) not in locked]
    if lacking:
        message = "the lock has no entry for: " + "; ".join(lacking)
        raise FoundationError(message, hint="make a new lock: channel_tools foundation build --update")
    wanted = {("wheel", project) for project in needed} | {("deb", name) for name, _ in debs}
    return {key: artifact for key, artifact in locked.items() if key in wanted}


def _needed_projects(requirements: Sequence[str], artifacts: Mapping[tuple[str, str], LockedArtifact]) -> set[str]:
    """The projects that the requirements need, directly or indirectly, as far as ``artifacts`` has their wheels."""

    def required_by(project: str) -> Iterable[str]:
        file = artifacts.get(("wheel", project))
        return () if file is None else map(project_of, file.requires)

    return reachable(map(project_of, requirements), required_by)


def _deb_rows(table: FoundationTable) -> dict[str, Entry]:
    """The rows by the names of their Debian packages."""
    return {deb_name(text): entry for entry in reversed(table.wanted) for text in entry.debs}


def _find_debs(rows: Mapping[str, Entry], sources: Sources, suite: str) -> LockedArtifacts:
    if not rows:
        return {}
    sources.reach(f"the versions of {len(rows)} Debian packages ({some_names(rows)})")
    try:
        sources.apt.update()
    except NetworkError as err:
        missing = f"{err.message}\nmissing: the versions of {len(rows)} Debian packages ({some_names(rows)})"
        raise NetworkError(missing, hint=err.hint) from None
    asked = {deb_name(text): text for entry in rows.values() for text in entry.debs}
    debs = sources.apt.find(asked[name] for name in rows)
    lacking = [f"{asked[name]}, wanted by {rows[name].position}" for name in sorted(rows.keys() - debs.keys())]
    if lacking:
        message = f"Debian {suite} has no package " + "; ".join(lacking)
        raise FoundationError(message, hint=f"correct the row, or {OTHER_FOUNDATION}")
    return {("deb", name): file for name, file in debs.items()}
