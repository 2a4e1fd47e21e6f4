# SPDX-License-Identifier: BSD-3-Clause
"""Solves the environments of a build with the foundation and with own packages that may not exist yet.

Own packages have strict priority over a conda-forge foundation, as the channel has when they are built; with the
registry foundation, they are in one channel with its packages and compete with them. Further channels stand below that
channel, and above conda-forge, each with strict priority over what is below it. A set of requirements without a
solution is a result here, not an error: the variant is unsatisfiable, for a readable reason.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
import re
from typing import TYPE_CHECKING, cast

from rattler import (
    BuildString,
    Channel,
    ChannelPriority,
    Gateway,
    GenericVirtualPackage,
    MatchSpec,
    PackageName,
    RepoDataRecord,
    SparseRepoData,
    Version,
    solve,
    solve_with_sparse_repodata,
)
from rattler.exceptions import FetchRepoDataError, GatewayError, SolverError

from channel_tools.conda.answers import while_answered
from channel_tools.conda.metadata import UNDATED_S
from channel_tools.conda.specs import InvalidSpecError, as_record, is_virtual, read_spec, spec_name
from channel_tools.plan.foundation import not_asked_for
from channel_tools.plan.lock import split_key
from channel_tools.plan.locking import text_of
from channel_tools.plan.own import OWN_CHANNEL, Resolved, SolveCache, Solved
from channel_tools.system.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rattler import Subdir

    from channel_tools.conda.package import RunExports
    from channel_tools.matrix.model import Requirement, VariantScalar
    from channel_tools.plan.foundation import FoundationIndex
    from channel_tools.plan.locking import LockedFoundation
    from channel_tools.plan.own import OwnRecords, SolveKey

_SOLVER_HEADER = "Cannot solve the request because of: "
_MAX_REASON = 400
_SHOWN_VERSIONS = 5
_SHOWN_DIGEST = 12
_VERSIONS = re.compile(r"[0-9][0-9a-z_.]*[0-9a-z]|[0-9]")
_TREE_LINES = str.maketrans("└├│─", "    ")
_BARE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_PLAIN_VERSION = re.compile(r"[A-Za-z0-9.]+")


class UnsatisfiableError(Exception):
    """The foundation cannot serve an environment; the text is the reason for people."""


class _RecordingSource:
    """Own records, and the names that one solve requested: its result depends only on these and the foundation."""

    def __init__(self, own: OwnRecords) -> None:
        self._own = own
        self.asked: set[str] = set()
        self.listed = False

    async def fetch_package_records(self, platform: Subdir, name: PackageName) -> list[RepoDataRecord]:
        self.asked.add(name.normalized)
        return await self._own.fetch_package_records(platform, name)

    def package_names(self, platform: Subdir) -> list[str]:
        self.listed = True
        return self._own.package_names(platform)


class EnvironmentSolver:
    """Solves environments for one platform; ``own`` grows while it is used."""

    def __init__(
        self,
        *,
        foundation: FoundationIndex,
        own: OwnRecords,
        platform: str,
        virtual_packages: Sequence[GenericVirtualPackage],
        cache: SolveCache | None = None,
    ) -> None:
        self.own = own
        self._cache = cache or SolveCache()
        self._foundation = foundation
        self._platforms = [platform, "noarch"]
        self._virtual_packages = list(virtual_packages)

    @functools.cached_property
    def _gateway(self) -> Gateway:
        return Gateway(cache_dir=self._foundation.cache, client=self._foundation.client)

    async def solve(self, specs: Sequence[str], *, beneath: Sequence[str] = ()) -> list[Resolved]:
        """The packages of an environment with ``specs``, sorted by name.

        ``beneath`` are requirements that ``specs`` come from, in which a reason is searched first: those of a finished
        package, which may run on a machine that has other virtual packages than this one. Raises
        UnsatisfiableError if there is no solution, NetworkError if the foundation's index cannot be reached.
        """
        if not specs:
            return []
        key = (tuple(specs), tuple(beneath))
        async with self._cache.lock(key):
            solved = self._cache.get(key, self.own) or await self._solve_anew(key)
        if solved.reason is not None:
            raise UnsatisfiableError(solved.reason)
        return list(solved.packages)

    async def _solve_anew(self, key: SolveKey) -> Solved:
        try:
            named = frozenset(spec_name(spec) for specs in key for spec in specs)
        except InvalidSpecError as err:
            wrong = f"a requirement is wrong: {_one_line(str(err))}"
            return Solved(names=frozenset(), files={}, unsatisfiable={}, packages=(), reason=wrong)
        reach = self._foundation.reach(named, self.own.requirements)
        source = _RecordingSource(self.own)
        packages: list[Resolved] = []
        reason = None
        try:
            solver = self._elsewhere(key[1])
            records = await solver._records_for(key[0], reach, source)  # noqa: SLF001 - of the same class
            asked = frozenset(map(spec_name, key[0]))
            packages = [await self._resolved(record, exports=record.name.normalized in asked) for record in records]
        except UnsatisfiableError as err:
            reason = str(err)
        except SolverError as err:
            reason = await self._explain([*key[1], *key[0]], str(err))
            locked = self._foundation.locked
            # what the tree itself makes may be more tomorrow
            if (
                locked is not None
                and not self._foundation.unlocked
                and (refusal := self._refusal(key[0], source.asked)) is not None
            ):
                locked.refuse(refusal, reason)
        names = source.asked | (reach or frozenset()) | named
        solved = Solved(
            names=frozenset(names),
            files=self.own.among(frozenset(names)),
            unsatisfiable={name: self.own.unsatisfiable.get(name) for name in named},
            packages=tuple(sorted(packages, key=lambda item: item.name)),
            reason=reason,
        )
        if not source.listed:  # otherwise it may depend on any of them
            self._cache.put(key, solved)
        return solved

    def _elsewhere(self, requirements: Sequence[str]) -> EnvironmentSolver:
        """A solver for a machine that has the virtual packages which these requirements name, too; else as this one.

        A package may be built on a machine that it does not run on.
        """
        below = self.own.needed(frozenset(map(spec_name, requirements)))
        texts = {*requirements, *(text for package in below for text in package.depends)}
        asked: dict[str, list[str]] = {}
        for text in sorted(text for text in texts if is_virtual(spec_name(text))):
            asked.setdefault(spec_name(text), []).append(text)
        here = {package.name.normalized: package for package in self._virtual_packages}
        for name, specs in asked.items():
            if (package := _virtual_package(name, specs, here.get(name))) is not None:
                here[name] = package
        if list(here.values()) == self._virtual_packages:
            return self
        other = copy.copy(self)
        other._virtual_packages = list(here.values())  # noqa: SLF001 - of the same class
        return other

    async def _records_for(
        self, texts: Sequence[str], reach: frozenset[str] | None, source: _RecordingSource
    ) -> list[RepoDataRecord]:
        specs = [read_spec(text) for text in texts]
        locked = self._foundation.locked
        if locked is not None:
            return await self._records_locked(locked, texts, specs, reach or frozenset(), source)
        if reach is None:
            return await self._solve(specs, source)
        return await self._solve_files(specs, reach, cast("Sequence[SparseRepoData]", self._foundation.sources))

    async def _records_locked(
        self,
        locked: LockedFoundation,
        texts: Sequence[str],
        specs: Sequence[MatchSpec],
        reach: frozenset[str],
        source: _RecordingSource,
    ) -> list[RepoDataRecord]:
        """Solve with the lock, else with the foundation, where locked packages stay if they can.

        Raises SolverError, and UnsatisfiableError for a reason that the lock has.
        """
        text = text_of(texts, self.own)
        for index, repodata in locked.views(text):
            try:
                records = await self._solve_files(specs, reach, [*self._foundation.unlocked, *repodata])
            except SolverError:
                continue
            if index is not None or not self._foundation.unlocked or any(map(locked.has, records)):
                locked.take(text, index, records)
            return records
        refusal = self._refusal(texts, reach)
        if refusal is not None and (reason := locked.unserved(refusal)) is not None:
            raise UnsatisfiableError(reason)
        preferred = locked.preferred(text)
        try:
            records = await self._solve(specs, source, pinned=preferred)
        except SolverError:
            if not preferred:
                raise
            records = await self._solve(specs, source, preferred=preferred)
        solved = {}
        for record in records:  # no lock has what is ours, or what the tree itself makes
            if not record.url.startswith(OWN_CHANNEL) and record.channel != self._foundation.shared_channel:
                key = locked.key_of(record) if locked.has(record) else self._foundation.key_of(record)
                solved[key] = (record, await self._exports_of(record))
        if solved or not self._foundation.unlocked:
            locked.fill(text, solved)
        return records

    def _refusal(self, texts: Sequence[str], names: Collection[str]) -> str | None:
        """How the lock names requirements without a solution, which may depend on packages of ours as they are now.

        ``names`` are those that a solve can look up. None if ours come in by a package of the foundation.
        """
        named = frozenset(map(spec_name, texts))
        own = self.own.needed(named)
        if self.own.among(frozenset(names)).keys() - {package.name for package in own}:
            return None
        facts = {f"{item.name} {item.version}: {text_of(item.depends, self.own)}" for item in own}
        facts |= {f"no {name}" for name in named & self.own.unsatisfiable.keys()}
        text = text_of(texts, self.own)
        if not facts:
            return text
        digest = hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()
        return f"{text} (with packages of this tree, {digest[:_SHOWN_DIGEST]})"

    async def _solve_files(
        self, specs: Sequence[MatchSpec], reach: frozenset[str], indexes: Sequence[SparseRepoData]
    ) -> list[RepoDataRecord]:
        """Solve with the foundation's indexes and the own packages with names in ``reach``."""
        own = [self.own.packages[file] for files in self.own.among(reach).values() for file in files]
        try:
            return await solve_with_sparse_repodata(
                specs,
                [*self._cache.indexes(own, self.own.channel), *indexes],
                virtual_packages=self._virtual_packages,
                channel_priority=self._priority,
            )
        except OSError as err:  # also raised for a record that cannot be parsed
            raise self._unreadable(err) from None

    async def _solve(
        self,
        specs: Sequence[MatchSpec],
        own: _RecordingSource,
        *,
        preferred: Sequence[RepoDataRecord] = (),
        pinned: Sequence[RepoDataRecord] = (),
    ) -> list[RepoDataRecord]:
        try:
            solution = solve(
                [own, *self._foundation.all_sources],
                specs,
                gateway=self._gateway,
                platforms=self._platforms,  # type: ignore[arg-type]  # plain names are taken as subdirs
                locked_packages=preferred,
                pinned_packages=pinned,
                virtual_packages=self._virtual_packages,
                channel_priority=self._priority,
            )
            return await while_answered(solution, self._foundation.asked)
        except (GatewayError, FetchRepoDataError) as err:
            raise self._unreadable(err) from None

    def _unreadable(self, err: Exception) -> NetworkError:
        further = "".join(f" or {channel.address}" for channel in self._foundation.further)
        message = f"the index of {self._foundation.label}{further} cannot be read: {_one_line(str(err))}"
        return NetworkError(message, hint="check the address and the network, or use --foundation registry")

    @property
    def _priority(self) -> ChannelPriority:
        # one channel competes with none
        is_alone = self._foundation.shares_channel and not self._foundation.further
        return ChannelPriority.Disabled if is_alone else ChannelPriority.Strict

    async def _resolved(self, record: RepoDataRecord, *, exports: bool) -> Resolved:
        """The package; its run_exports are looked up only if it is itself a requirement, as they count only then."""
        address = record.url
        run_exports = await self._exports_of(record) if exports else None
        return self._cache.resolved(
            (address, exports), lambda: self._resolved_anew(record, run_exports, is_required=exports)
        )

    async def _exports_of(self, record: RepoDataRecord) -> RunExports | None:
        if record.url.startswith(OWN_CHANNEL):
            return self.own.packages[record.file_name].run_exports
        locked = self._foundation.locked
        if locked is not None and locked.has(record):
            return locked.run_exports(record)
        return await self._foundation.exports_of(record)

    def _resolved_anew(self, record: RepoDataRecord, exports: RunExports | None, *, is_required: bool) -> Resolved:
        own = self.own.packages.get(record.file_name) if record.url.startswith(OWN_CHANNEL) else None
        dated_s = int(record.timestamp.timestamp()) if record.timestamp else UNDATED_S
        return Resolved(
            name=record.name.normalized,
            version=str(record.version),
            build=str(record.build),
            subdir=record.subdir,
            file_name=record.file_name,
            sha256=record.sha256.hex() if record.sha256 else "",
            digest=own.digest if own else None,
            run_exports=exports,
            date_s=own.date_s if own else dated_s,
            channel="" if own else self._channel_of(record),
            is_required=is_required,
            is_noarch_python=record.noarch.python,
        )

    def _channel_of(self, record: RepoDataRecord) -> str:
        """The name of the further channel that a record is from, empty if it is the foundation's."""
        locked = self._foundation.locked
        if locked is not None and locked.has(record):
            return split_key(locked.key_of(record))[0]
        further = self._foundation.further_of(record)
        return "" if further is None else further.name

    async def _explain(self, specs: Sequence[str], solver_message: str) -> str:
        """Name the requirement that has no candidate by itself, else the solver's message."""
        for text in specs:
            if (reason := await self._explain_spec(text)) is not None:
                return reason
        return _one_line(solver_message.removeprefix(_SOLVER_HEADER))

    async def _explain_spec(self, text: str) -> str | None:
        name = spec_name(text)
        if is_virtual(name):
            present = {package.name.normalized for package in self._virtual_packages}
            return None if name in present else f"{text}: this machine does not have {name}"
        records = await self._records(name)
        if not records and name in self.own.unsatisfiable:
            return self.own.unsatisfiable[name]
        if not records and name in self._foundation.optional:
            return f"{name}: {not_asked_for(name)}"
        if not records:
            return f"{name}: {self._searched()} has no package of this name"
        spec = read_spec(text)
        if any(record.matches(spec) for record in records):
            return None
        source = "this channel" if any(r.url.startswith(OWN_CHANNEL) for r in records) else self._searched()
        return f"{text}: {source} has only {_known_versions(records, spec)}"

    def _searched(self) -> str:
        """What has all packages but ours, for messages."""
        return ", ".join([self._foundation.label, *(channel.name for channel in self._foundation.further)])

    async def _records(self, name: str) -> list[RepoDataRecord]:
        """Every record of a name, our own and the foundation's."""
        if self._foundation.requirements is not None and not self._foundation.further:
            indexes = cast("Sequence[SparseRepoData]", self._foundation.sources)
            return [*self.own.records(name), *(record for index in indexes for record in index.load_records(name))]
        query = self._gateway.query(
            cast("list[Channel]", [self.own, *self._foundation.all_sources]),
            self._platforms,  # type: ignore[arg-type]  # as in solve
            [name],
            recursive=False,
        )
        groups = await while_answered(query, self._foundation.asked)
        return [record for group in groups for record in group]


def _virtual_package(
    name: str, specs: Sequence[str], present: GenericVirtualPackage | None
) -> GenericVirtualPackage | None:
    """A virtual package of this name that meets all ``specs``: the one that is ``present`` if it does; None if none."""
    parsed = [read_spec(text) for text in specs]
    named = [text for spec in parsed for text in _VERSIONS.findall(str(spec.version or ""))]
    versions = sorted({"0", *named, *(f"{text}.1" for text in named)}, key=Version)
    builds = ["0", *(str(spec.build).replace("*", "") for spec in parsed if spec.build)]
    if present is not None:
        versions.insert(0, str(present.version))
        builds.insert(0, str(present.build_string))
    for version, build in itertools.product(versions, builds):
        if build and all(spec.matches(as_record(name, version, build)) for spec in parsed):
            return GenericVirtualPackage(PackageName(name), Version(version), BuildString(build))
    return None


def _known_versions(records: Sequence[RepoDataRecord], spec: MatchSpec) -> str:
    """The existing versions, newest first; with build strings if only the build string does not match."""
    fitting: list[RepoDataRecord] = []
    if spec.version is not None:
        fitting = [
            record for record in records if record.matches(read_spec(f"{record.name.normalized} {spec.version}"))
        ]
    if fitting:
        shown = sorted({f"{record.version} {record.build}" for record in fitting})
    else:
        versions = {str(record.version) for record in records}
        shown = sorted(versions, key=Version, reverse=True)
    return ", ".join(shown[:_SHOWN_VERSIONS]) + (", ..." if len(shown) > _SHOWN_VERSIONS else "")


def pin_by_variant(requirement: Requirement, variant: Mapping[str, VariantScalar]) -> Requirement:
    """The engine's MatchSpec for a bare name in build and host if the variant has a value for it.

    A plain version matches all versions that start with it (``libgrpc`` and 1.51: ``libgrpc =1.51``); anything else is
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
