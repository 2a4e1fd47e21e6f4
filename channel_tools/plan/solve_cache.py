# SPDX-License-Identifier: BSD-3-Clause
"""What environments are solved to, and a cache of solves: stacks share most environments.

A solve depends on its requirements, on the foundation, and on those own packages whose names it may have looked up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.plan.own import index_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rattler import SparseRepoData

    from channel_tools.conda.package import RunExports
    from channel_tools.plan.own import OwnPackage, OwnRecords

SolveKey = tuple[tuple[str, ...], tuple[str, ...]]
"""The requirements of an environment, and those that are their cause."""


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
