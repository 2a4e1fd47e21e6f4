# SPDX-License-Identifier: BSD-3-Clause
"""Solving the environments of a build against the foundation and against own packages that may not exist yet.

Own packages stand before a conda-forge foundation with strict priority, as the channel does when they are built; with
the registry foundation they are in one channel with its packages, and compete with them. A set of requirements without
a solution is an answer here, not an error: the variant is unserved, for a reason that can be read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from rattler import ChannelPriority, Gateway, MatchSpec, PackageRecord, RepoDataRecord, Version, solve
from rattler.exceptions import FetchRepoDataError, GatewayError, InvalidMatchSpecError, SolverError
from rattler.package import BuildString

from channel_tools.errors import NetworkError
from channel_tools.matrix.model import requirement_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rattler import Channel, GenericVirtualPackage, PackageName, Subdir

    from channel_tools.matrix.model import Requirement, VariantScalar
    from channel_tools.plan.foundation import Foundation, RunExports

_OWN_CHANNEL = "file:///own-packages-being-planned"
_SOLVER_HEADER = "Cannot solve the request because of: "
_MAX_REASON = 400
_SHOWN_VERSIONS = 5
_TREE_LINES = str.maketrans("└├│─", "    ")
_BARE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.]+")


class UnservedError(Exception):
    """The foundation cannot serve an environment; the text is the reason for a reader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A package in a solved environment; ``digest`` is given for own packages only."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    digest: str | None
    run_exports: RunExports | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnPackage:
    """An own package whose name and requirements are known, built or not."""

    name: str
    version: str
    build_string: str
    build_number: int
    subdir: str
    depends: tuple[str, ...]
    digest: str
    run_exports: RunExports
    track_features: tuple[str, ...] = ()
    """Not empty: solvers prefer any other build of the name."""

    @property
    def file_name(self) -> str:
        """The package file inside its subdir."""
        return f"{self.name}-{self.version}-{self.build_string}.conda"


class OwnRecords:
    """Repodata of own packages in memory, filled while planning goes from the leaves upward (RepoDataSource)."""

    def __init__(self) -> None:
        self.packages: dict[str, OwnPackage] = {}
        self.unserved: dict[str, str] = {}
        """Reasons of own packages without any record, by name."""
        self._records: dict[str, list[RepoDataRecord]] = {}

    def add(self, package: OwnPackage) -> None:
        """Let later solves see ``package``."""
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
        url = f"{_OWN_CHANNEL}/{package.subdir}/{package.file_name}"
        entry = RepoDataRecord(record, package.file_name, url, _OWN_CHANNEL)
        self._records.setdefault(package.name, []).append(entry)
        self.packages[package.file_name] = package

    def remove(self, package: OwnPackage) -> None:
        """Take back what turned out to be unserved."""
        del self.packages[package.file_name]
        self._records[package.name] = [r for r in self._records[package.name] if r.file_name != package.file_name]

    def has_none_of(self, names: frozenset[str]) -> bool:
        """Whether no package has any of these names."""
        return not any(found and name in names for name, found in self._records.items())

    def file_names(self, platform: str, name: str) -> tuple[str, ...]:
        """What it has of a name, in the order in which it came."""
        return tuple(record.file_name for record in self._records.get(name, []) if record.subdir == platform)

    async def fetch_package_records(self, platform: Subdir, name: PackageName) -> list[RepoDataRecord]:
        """As the solver asks for them."""
        return [record for record in self._records.get(name.normalized, []) if record.subdir == str(platform)]

    def package_names(self, platform: Subdir) -> list[str]:
        """The names this source knows for a platform."""
        wanted = str(platform)
        return sorted(name for name, found in self._records.items() if any(item.subdir == wanted for item in found))


class _Watched:
    """Own records, and which of them one solve asked for: its answer follows from these and the foundation alone."""

    def __init__(self, own: OwnRecords) -> None:
        self._own = own
        self.asked: set[tuple[str, str]] = set()
        self.listed = False

    async def fetch_package_records(self, platform: Subdir, name: PackageName) -> list[RepoDataRecord]:
        self.asked.add((str(platform), name.normalized))
        return await self._own.fetch_package_records(platform, name)

    def package_names(self, platform: Subdir) -> list[str]:
        self.listed = True
        return self._own.package_names(platform)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    """What a solve came to, and what it saw of own packages: files by platform and name, and why names have none.

    ``reach`` are the names that it could come upon where own packages were left out, since none has such a name.
    """

    seen: Mapping[tuple[str, str], tuple[str, ...]]
    reach: frozenset[str]
    unserved: Mapping[str, str | None]
    packages: tuple[Resolved, ...]
    reason: str | None

    def holds_for(self, own: OwnRecords) -> bool:
        """Whether the same solve would come to the same now; own packages of one file name have one content."""
        return (
            own.has_none_of(self.reach)
            and all(own.file_names(*place) == files for place, files in self.seen.items())
            and all(own.unserved.get(name) == reason for name, reason in self.unserved.items())
        )


class SolveMemory:
    """What was solved already, for solvers of one foundation, platform and machine: stacks share most environments."""

    def __init__(self) -> None:
        self._answers: dict[tuple[tuple[str, ...], ...], list[_Answer]] = {}

    def recall(self, key: tuple[tuple[str, ...], ...], own: OwnRecords) -> _Answer | None:
        """The answer to an earlier solve of the same requirements that saw the same own packages."""
        return next((answer for answer in self._answers.get(key, ()) if answer.holds_for(own)), None)

    def keep(self, key: tuple[tuple[str, ...], ...], answer: _Answer) -> None:
        """For later ones."""
        self._answers.setdefault(key, []).append(answer)


class EnvironmentSolver:
    """Solves for one platform; ``own`` grows while it is used."""

    def __init__(
        self,
        *,
        foundation: Foundation,
        own: OwnRecords,
        platform: str,
        virtual_packages: Sequence[GenericVirtualPackage],
        memory: SolveMemory | None = None,
    ) -> None:
        self.own = own
        self._memory = memory or SolveMemory()
        self._foundation = foundation
        self._platforms = [platform, "noarch"]
        self._virtual_packages = list(virtual_packages)
        self._gateway = Gateway()

    async def solve(self, specs: Sequence[str], *, beneath: Sequence[str] = ()) -> list[Resolved]:
        """The packages of an environment with ``specs``, sorted by name.

        ``beneath`` are requirements of ``specs`` themselves, where a reason is looked for first. Raises UnservedError
        when there is no solution, NetworkError when the foundation's index cannot be reached.
        """
        if not specs:
            return []
        key = (tuple(specs), tuple(beneath))
        answer = self._memory.recall(key, self.own) or await self._solve_anew(key)
        if answer.reason is not None:
            raise UnservedError(answer.reason)
        return list(answer.packages)

    async def _solve_anew(self, key: tuple[tuple[str, ...], ...]) -> _Answer:
        watched = _Watched(self.own)
        named = {requirement_name(spec) for specs in key for spec in specs}
        reach = self._foundation.reach(named)
        alone = reach if reach is not None and self.own.has_none_of(reach) else None
        packages: tuple[Resolved, ...] = ()
        reason = None
        try:
            packages = tuple(await self._solve(key[0], [watched] if alone is None else []))
        except SolverError as err:
            reason = await self._explain([*key[1], *key[0]], str(err))
        except InvalidMatchSpecError as err:
            reason = f"a requirement is no MatchSpec: {_one_line(str(err))}"
        places = watched.asked | {(platform, name) for platform in self._platforms for name in named}
        answer = _Answer(
            seen={place: self.own.file_names(*place) for place in places},
            reach=alone or frozenset(),
            unserved={name: self.own.unserved.get(name) for name in named},
            packages=packages,
            reason=reason,
        )
        if not watched.listed:  # else it may depend on any of them
            self._memory.keep(key, answer)
        return answer

    async def _solve(self, specs: Sequence[str], own: Sequence[_Watched]) -> list[Resolved]:
        try:
            records = await solve(
                [*own, *self._foundation.sources],
                [MatchSpec(spec) for spec in specs],
                gateway=self._gateway,
                platforms=self._platforms,  # type: ignore[arg-type]  # plain names are taken as subdirs
                virtual_packages=self._virtual_packages,
                channel_priority=ChannelPriority.Disabled
                if self._foundation.shares_channel
                else ChannelPriority.Strict,
            )
        except (GatewayError, FetchRepoDataError) as err:
            raise self._unreachable(err) from None
        return sorted((self._resolved(record) for record in records), key=lambda item: item.name)

    def _unreachable(self, err: Exception) -> NetworkError:
        message = f"the index of {self._foundation.label} cannot be read: {_one_line(str(err))}"
        return NetworkError(message, hint="check the address and the route to it, or take --foundation registry")

    def _resolved(self, record: RepoDataRecord) -> Resolved:
        own = self.own.packages.get(record.file_name) if record.url.startswith(_OWN_CHANNEL) else None
        exports = self._foundation.run_exports.get(f"{record.subdir}/{record.file_name}")
        return Resolved(
            name=record.name.normalized,
            version=str(record.version),
            build=str(record.build),
            subdir=record.subdir,
            file_name=record.file_name,
            sha256=record.sha256.hex() if record.sha256 else "",
            digest=own.digest if own else None,
            run_exports=own.run_exports if own else exports,
        )

    async def _explain(self, specs: Sequence[str], solver_message: str) -> str:
        """Name the requirement that alone has no candidate; else repeat what the solver says."""
        for text in specs:
            if (reason := await self._explain_spec(text)) is not None:
                return reason
        return _one_line(solver_message.removeprefix(_SOLVER_HEADER))

    async def _explain_spec(self, text: str) -> str | None:
        name = requirement_name(text)
        if name.startswith("__"):
            present = {package.name.normalized for package in self._virtual_packages}
            return None if name in present else f"{text}: this machine does not have {name}"
        groups = await self._gateway.query(
            cast("list[Channel]", [self.own, *self._foundation.sources]),
            self._platforms,  # type: ignore[arg-type]  # as in solve
            [name],
            recursive=False,
        )
        records = [record for group in groups for record in group]
        if not records and name in self.own.unserved:
            return self.own.unserved[name]
        if not records and name in self._foundation.optional:
            how = f"channel_tools build does so, or: channel_tools foundation build --with {name}"
            return f"{name}: {self._foundation.label} makes it only when it is asked for; {how}"
        if not records:
            return f"{name}: {self._foundation.label} has no package of this name"
        spec = MatchSpec(text)
        if any(record.matches(spec) for record in records):
            return None
        where = "this channel" if any(r.url.startswith(_OWN_CHANNEL) for r in records) else self._foundation.label
        return f"{text}: {where} has only {_known_versions(records, spec)}"


def _known_versions(records: Sequence[RepoDataRecord], spec: MatchSpec) -> str:
    """The versions there are, newest first; with build strings when it is the build string that does not fit."""
    fitting: list[RepoDataRecord] = []
    if spec.version is not None:
        fitting = [
            record for record in records if record.matches(MatchSpec(f"{record.name.normalized} {spec.version}"))
        ]
    if fitting:
        shown = sorted({f"{record.version} {record.build}" for record in fitting})
    else:
        versions = {str(record.version) for record in records}
        shown = sorted(versions, key=Version, reverse=True)
    return ", ".join(shown[:_SHOWN_VERSIONS]) + (", ..." if len(shown) > _SHOWN_VERSIONS else "")


def pin_by_variant(requirement: Requirement, variant: Mapping[str, VariantScalar]) -> Requirement:
    """What the engine makes of a bare name in build and host when the variant has a value for it.

    A plain version fits all that starts with it (``libgrpc`` and 1.51: ``libgrpc =1.51``); anything else is taken as
    the rest of the MatchSpec.
    """
    if not isinstance(requirement, str) or not _BARE_NAME.fullmatch(requirement):
        return requirement
    value = variant.get(requirement.lower().replace("-", "_"))
    if value is None:
        return requirement
    return f"{requirement} ={value}" if _PLAIN_VERSION.fullmatch(str(value)) else f"{requirement} {value}"


def _one_line(text: str) -> str:
    line = " ".join(text.translate(_TREE_LINES).split()).rstrip(".")
    return line if len(line) <= _MAX_REASON else line[: _MAX_REASON - 3] + "..."
