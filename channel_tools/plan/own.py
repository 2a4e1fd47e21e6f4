# SPDX-License-Identifier: BSD-3-Clause
"""Packages that exist in a plan alone, own ones not yet built or locked ones, as repodata in memory for the solver.

What environments are solved to, and a cache of solves: stacks share most environments.

A solve depends on its requirements, on the foundation, and on those own packages whose names it may have looked up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rattler import PackageRecord, RepoDataRecord
from rattler.package import BuildString

from channel_tools.conda.metadata import UNDATED_S
from channel_tools.conda.solving import memory_index
from channel_tools.conda.specs import spec_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rattler import PackageName, SparseRepoData, Subdir

    from channel_tools.conda.package import RunExports

OWN_CHANNEL = "file:///own-packages-being-planned"


SolveKey = tuple[tuple[str, ...], tuple[str, ...]]
"""The requirements of an environment, and those that are their cause."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnPackage:
    """An own package whose name and requirements are known, whether built or not."""

    name: str
    version: str
    build_string: str
    build_number: int
    subdir: str
    depends: tuple[str, ...]
    digest: str
    run_exports: RunExports
    date_s: int = UNDATED_S
    track_features: tuple[str, ...] = ()
    """If not empty, solvers prefer any other build of the name."""

    @property
    def file_name(self) -> str:
        """The package file inside its subdir."""
        return f"{self.name}-{self.version}-{self.build_string}.conda"


class OwnRecords:
    """Repodata of own packages in memory, filled while planning proceeds from the leaves upward (RepoDataSource).

    To the solver they are in ``channel``, which has one priority.
    """

    def __init__(self, channel: str = OWN_CHANNEL) -> None:
        self.channel = channel
        self.packages: dict[str, OwnPackage] = {}
        self.unsatisfiable: dict[str, str] = {}
        """The reasons why own packages have no record, by name."""
        self._by_name: dict[str, list[OwnPackage]] = {}

    def add(self, package: OwnPackage) -> None:
        """Make ``package`` visible to later solves."""
        self._by_name.setdefault(package.name, []).append(package)
        self.packages[package.file_name] = package

    def remove(self, package: OwnPackage) -> None:
        """Remove a package that turned out to be unsatisfiable."""
        del self.packages[package.file_name]
        self._by_name[package.name].remove(package)

    def requirements(self, name: str) -> frozenset[str]:
        """The names that packages called ``name`` require."""
        if name not in self._by_name:  # most are not
            return frozenset()
        return frozenset(spec_name(item) for package in self._by_name[name] for item in package.depends)

    def needed(self, names: frozenset[str]) -> list[OwnPackage]:
        """The packages with these names, and those that they need of each other."""
        packages: list[OwnPackage] = []
        known: set[str] = set()
        waiting = sorted(names)
        while waiting:
            name = waiting.pop()
            if name not in known:
                known.add(name)
                packages += self._by_name.get(name, [])
                waiting += self.requirements(name)
        return packages

    def among(self, names: frozenset[str]) -> dict[str, tuple[str, ...]]:
        """The files of packages with these names, by name, in the order in which they were added."""
        return {
            name: tuple(package.file_name for package in packages)
            for name, packages in self._by_name.items()
            if packages and name in names
        }

    async def fetch_package_records(self, platform: Subdir, name: PackageName) -> list[RepoDataRecord]:
        """The records of a name, as the gateway requests them."""
        return [record for record in self.records(name.normalized) if record.subdir == str(platform)]

    def package_names(self, platform: Subdir) -> list[str]:
        """The names in this source for a platform."""
        wanted = str(platform)
        return sorted(
            name for name, packages in self._by_name.items() if any(item.subdir == wanted for item in packages)
        )

    def records(self, name: str) -> list[RepoDataRecord]:
        """The records of a name."""
        return [_record(package, self.channel) for package in self._by_name.get(name, [])]


def _record(package: OwnPackage, channel: str) -> RepoDataRecord:
    record = PackageRecord(
        name=package.name,
        version=package.version,
        build=BuildString(package.build_string),
        build_number=package.build_number,
        subdir=package.subdir,
        noarch="generic" if package.subdir == "noarch" else None,
        depends=list(package.depends),
    )
    record.track_features = list(package.track_features)
    url = f"{OWN_CHANNEL}/{package.subdir}/{package.file_name}"
    return RepoDataRecord(record, package.file_name, url, channel)


def repodata_of(package: OwnPackage) -> dict[str, object]:
    """The package as an entry of repodata.json."""
    return {
        "name": package.name,
        "version": package.version,
        "build": package.build_string,
        "build_number": package.build_number,
        "subdir": package.subdir,
        **({"noarch": "generic"} if package.subdir == "noarch" else {}),
        "depends": list(package.depends),
        **({"track_features": " ".join(package.track_features)} if package.track_features else {}),
    }


def index_of(packages: Sequence[OwnPackage], channel: str) -> list[SparseRepoData]:
    """Own packages as repodata that the solver reads without calling Python for each name, one index per subdir.

    They are in ``channel``, with addresses below OWN_CHANNEL.
    """
    subdirs: dict[str, dict[str, Mapping[str, object]]] = {}
    for package in packages:
        subdirs.setdefault(package.subdir, {})[package.file_name] = repodata_of(package)
    return [
        memory_index(channel, subdir, records, base_url=f"{OWN_CHANNEL}/{subdir}/")
        for subdir, records in subdirs.items()
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A package in a solved environment; only own packages have a ``digest``."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    digest: str | None
    run_exports: RunExports | None
    date_s: int
    """The timestamp of its index.json, in seconds since 1970."""
    channel: str = ""
    """The name of the further channel that it is from; empty for the foundation's and our own."""
    is_required: bool
    """Whether it is itself among the requirements that were solved, not just needed by one."""
    is_noarch_python: bool

    @property
    def key(self) -> str:
        """Its key in a lock."""
        return "/".join(filter(None, (self.channel, self.subdir, self.file_name)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Solved:
    """The result of a solve, and everything that it depends on besides its requirements and the foundation.

    ``names`` are all names that it may have looked up, ``files`` the own packages among them, ``unsatisfiable`` the
    reasons why own packages that it names have no record.
    """

    names: frozenset[str]
    files: Mapping[str, tuple[str, ...]]
    unsatisfiable: Mapping[str, str | None]
    packages: tuple[Resolved, ...]
    reason: str | None

    def holds_for(self, own: OwnRecords) -> bool:
        """Whether the same solve would have the same result now; own packages with one file name have one content."""
        return own.among(self.names) == self.files and all(
            own.unsatisfiable.get(name) == reason for name, reason in self.unsatisfiable.items()
        )


class SolveCache:
    """A cache of solves for one foundation, platform and machine."""

    def __init__(self) -> None:
        self._solved: dict[SolveKey, list[Solved]] = {}
        self._locks: dict[SolveKey, asyncio.Lock] = {}
        self._indexes: dict[tuple[str, ...], list[SparseRepoData]] = {}
        self._resolved: dict[tuple[str, bool], Resolved] = {}

    def lock(self, key: SolveKey) -> asyncio.Lock:
        """The lock for looking up and solving these requirements, so that parallel plans solve them once."""
        return self._locks.setdefault(key, asyncio.Lock())

    def get(self, key: SolveKey, own: OwnRecords) -> Solved | None:
        """An earlier solve of the same requirements with the same own packages."""
        return next((solved for solved in self._solved.get(key, ()) if solved.holds_for(own)), None)

    def put(self, key: SolveKey, solved: Solved) -> None:
        """Add a solve that depends only on what ``solved`` says."""
        self._solved.setdefault(key, []).append(solved)

    def indexes(self, packages: Sequence[OwnPackage], channel: str) -> list[SparseRepoData]:
        """Repodata of own packages in ``channel``; those with one file name have one content."""
        file_names = tuple(package.file_name for package in packages)
        if file_names not in self._indexes:
            self._indexes[file_names] = index_of(packages, channel)
        return self._indexes[file_names]

    def resolved(self, key: tuple[str, bool], make: Callable[[], Resolved]) -> Resolved:
        """What ``make`` returns for the package at an address; cached, since records are slow to read.

        ``key`` is the address, and whether its run_exports are wanted.
        """
        resolved = self._resolved.get(key)
        if resolved is None:
            resolved = self._resolved[key] = make()
        return resolved
