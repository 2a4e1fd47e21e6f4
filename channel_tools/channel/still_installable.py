# SPDX-License-Identifier: BSD-3-Clause
"""Which listed packages can be installed, and what a change of a channel must leave: these, and its stacks.

A set hides packages: those of the former foundation, older builds of a variant. What stays listed and needs one of them
is solved again, by rattler and against the channel alone: requirements on names that the channel did not have before
the change (virtual packages, those of a foundation that is another channel) count as met. What is replaced by a build
of the same version and variant with a greater build number need not stay installable.

A channel that is verified has each package of ours solved for, unless it is in the solution for another one. Where the
channel has its foundation itself, requirements on names that it does not have are not met.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import rattler
from rattler.exceptions import SolverError

from channel_tools.conda.archive import stream_component
from channel_tools.conda.package import NOARCH, PackageKey
from channel_tools.conda.solving import memory_index, one_line
from channel_tools.conda.specs import is_virtual, name_or_none, read_spec
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError
from channel_tools.system.settings import INSTALLED_STACKS, STACKS_PACKAGE
from channel_tools.system.yamlfile import parse_yaml, yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from rattler import RepoDataRecord, SparseRepoData

    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.contents import JsonObject
    from channel_tools.system.beneath import Beneath

    Listed = Mapping[str, Mapping[str, CachedPackage]]
    """The packages that new solves see, by subdir and file name, with their records as patched."""

_CHANNEL = "file:///the-channel-that-is-changed"
_SHOWN = 5
_SOLVE_LIMIT = dt.timedelta(seconds=60)
"""A package of a whole conda-forge takes some seconds."""
_CANCELLED = "Solve operation has been cancelled"
"""What py-rattler 0.28 says when the time is over."""
_STACKS_FILE = f"{INSTALLED_STACKS}/variants/stacks.yaml"


def check_change(before: Listed, after: Listed, *, stacks_of: Callable[[PackageKey], frozenset[str]]) -> None:
    """Raise ChannelError if what is listed before and after could be installed before only, or if stacks are dropped.

    ``stacks_of`` returns what a package channel_tools-stacks of ``before`` or ``after`` says; it is called for those
    that a solver would install.
    """
    hidden = {f"{subdir}/{name}" for subdir in before for name in before[subdir].keys() - after[subdir].keys()}
    is_told_anew = _keys_of(STACKS_PACKAGE, before) != _keys_of(STACKS_PACKAGE, after)
    if hidden or is_told_anew:
        asyncio.run(_check(before, after, hidden, stacks_of))


async def _check(
    before: Listed, after: Listed, hidden: Collection[str], stacks_of: Callable[[PackageKey], frozenset[str]]
) -> None:
    names = frozenset(row.name.lower() for rows in before.values() for row in rows.values())
    former, latter = _Solves(listed=before, names=names), _Solves(listed=after, names=names)
    lost: dict[str, list[str]] = {}
    fine: set[tuple[str, str]] = set()
    for platform in former.platforms:
        for key in _concerned(before, after, hidden, (platform, NOARCH)):
            if (platform, str(key)) in fine:
                continue
            try:
                solution = await latter.installed_with(key, platform)
            except SolverError:
                with contextlib.suppress(SolverError):
                    lost[str(key)] = sorted(await former.installed_with(key, platform) & set(hidden))
                continue
            fine |= {(platform, other) for other in solution}  # all that it has can be installed
    if lost:
        raise _lost_error(lost)
    told, tells = await former.chosen(STACKS_PACKAGE), await latter.chosen(STACKS_PACKAGE)
    if told is not None and tells is not None and told != tells:
        dropped = sorted(stacks_of(told) - stacks_of(tells))
        if dropped:
            message = (
                f"nothing was published: {tells} lacks {counted(len(dropped), 'stack')} that {told} tells users of: "
                f"{', '.join(dropped)}"
            )
            hint = (
                "publish from a tree whose stacks.yaml has these, too; to drop them on purpose, first: "
                f"channel_tools yank {told.file_name} --reason TEXT"
            )
            raise ChannelError(message, hint=hint)


def find_uninstallable(listed: Listed, *, ours: Collection[PackageKey], is_whole: bool) -> dict[PackageKey, str]:
    """Why packages of ``ours`` cannot be installed on any platform of the channel, for those that are ``listed``.

    ``is_whole`` says that packages find all that they need in the channel. Builds that a greater build number replaces
    are not asked about. A solve is given up after a minute, which is then the reason.
    """
    return asyncio.run(_uninstallable(listed, ours, is_whole=is_whole))


async def _uninstallable(listed: Listed, ours: Collection[PackageKey], *, is_whole: bool) -> dict[PackageKey, str]:
    names = frozenset(row.name.lower() for rows in listed.values() for row in rows.values())
    solves = _Solves(listed=listed, names=None if is_whole else names)
    fine: set[str] = set()
    refused = {}
    newest = _newest_builds(listed)
    for key in sorted(ours, key=str):
        row = listed.get(key.subdir, {}).get(key.file_name)
        if row is None or str(key) in fine:
            continue
        variant, number = _variant_of(key.subdir, row)
        if number < newest[variant]:
            continue
        for platform in solves.platforms if key.subdir == NOARCH else [key.subdir]:
            try:
                fine |= await solves.installed_with(key, platform)
                break
            except SolverError as err:
                refused[key] = one_line(err)
    return {key: reason for key, reason in refused.items() if str(key) not in fine}


def _newest_builds(listed: Listed, subdirs: Collection[str] | None = None) -> dict[tuple[object, ...], int]:
    """The greatest build number of each variant, in these subdirs (None: all)."""
    newest: dict[tuple[object, ...], int] = {}
    for subdir in listed if subdirs is None else subdirs:
        for row in listed.get(subdir, {}).values():
            variant, number = _variant_of(subdir, row)
            newest[variant] = max(number, newest.get(variant, 0))
    return newest


def _keys_of(name: str, listed: Listed) -> set[str]:
    return {f"{subdir}/{file}" for subdir, rows in listed.items() for file, row in rows.items() if row.name == name}


def _concerned(
    before: Listed, after: Listed, hidden: Collection[str], subdirs: Collection[str]
) -> Iterator[PackageKey]:
    """The packages of ``subdirs``, listed before and after, that need a hidden package's name, however indirectly."""
    reached = {before[key.subdir][key.file_name].name.lower() for key in map(PackageKey.parse, hidden)}
    kept = [
        (PackageKey(subdir, name), row.name.lower(), frozenset(map(name_or_none, row.depends)))
        for subdir in subdirs
        for name, row in sorted(after.get(subdir, {}).items())
        if name in before.get(subdir, {})
    ]
    while grown := {name for _key, name, needs in kept if name not in reached and needs & reached}:
        reached |= grown
    newest = _newest_builds(after, subdirs)
    for key, _name, needs in kept:
        variant, number = _variant_of(key.subdir, after[key.subdir][key.file_name])
        if needs & reached and number == newest[variant]:
            yield key


def _variant_of(subdir: str, row: CachedPackage) -> tuple[tuple[object, ...], int]:
    """What builds of one variant have in common, and this build's number; others' packages each are a variant."""
    record, variant = row.record, row.origin.variant
    known = row.sha256 if variant is None else tuple(sorted(variant.items()))
    number = record.get("build_number")
    return (subdir, row.name, record.get("version"), known), number if isinstance(number, int) else 0


@dataclass(frozen=True, kw_only=True)
class _Solves:
    """Solves against the listed packages of a channel.

    Requirements on other than ``names`` count as met, with None only those on virtual packages.
    """

    listed: Listed
    names: frozenset[str] | None

    @property
    def platforms(self) -> list[str]:
        """The subdirs for which environments are made."""
        return sorted(subdir for subdir, rows in self.listed.items() if subdir != NOARCH and rows) or [NOARCH]

    async def installed_with(self, key: PackageKey, platform: str) -> set[str]:
        """The packages of an environment of ``platform`` with this one. Raises SolverError if there is none."""
        record = self.listed[key.subdir][key.file_name].record
        spec = "{name}[version='=={version}', build='{build}', build_number={build_number}".format_map(record)
        solution = await self._solution(f"{spec}, subdir='{key.subdir}']", platform)
        return {f"{found.subdir}/{found.file_name}" for found in solution}

    async def chosen(self, name: str) -> PackageKey | None:
        """The package of this name that an environment of the first platform gets, None if there is none."""
        try:
            solution = await self._solution(name, self.platforms[0])
        except SolverError:
            return None
        found = next((found for found in solution if found.name.normalized == name), None)
        return None if found is None else PackageKey(found.subdir, found.file_name)

    async def _solution(self, spec: str, platform: str) -> list[RepoDataRecord]:
        indexes = [index for subdir, index in self._indexes.items() if subdir in {platform, NOARCH}]
        try:
            return await rattler.solve_with_sparse_repodata([read_spec(spec)], indexes, timeout=_SOLVE_LIMIT)
        except SolverError as err:
            if _CANCELLED in str(err):
                raise SolverError(f"it was not decided within {_SOLVE_LIMIT.seconds} s") from None
            raise

    @cached_property
    def _indexes(self) -> dict[str, SparseRepoData]:
        return {
            subdir: memory_index(_CHANNEL, subdir, {name: self._reduced(row.record) for name, row in rows.items()})
            for subdir, rows in self.listed.items()
        }

    def _reduced(self, record: JsonObject) -> JsonObject:
        depends = record.get("depends")
        if not isinstance(depends, list):
            return record
        return record | {"depends": [text for text in depends if self._is_asked_of(name_or_none(str(text)))]}

    def _is_asked_of(self, name: str | None) -> bool:
        return name is not None and (not is_virtual(name) if self.names is None else name in self.names)


def _lost_error(lost: Mapping[str, list[str]]) -> ChannelError:
    by_needs = defaultdict(list)
    for key, needs in lost.items():
        by_needs[tuple(needs)].append(key)
    lines = [
        f"{_shown(keys)}: needs {_shown(needs) if needs else 'what would no longer fit'}"
        for needs, keys in by_needs.items()
    ]
    what = counted(
        len(lost), "listed package could no longer be installed", "listed packages could no longer be installed"
    )
    message = f"nothing was published: {what}, since what they need would be hidden:\n" + "\n".join(lines)
    hint = (
        "build and publish from the tree that these come from, with the foundation that it has; publish under another "
        "label (--label NAME); or hide those that nobody is to install any more: channel_tools yank SPEC --reason TEXT"
    )
    return ChannelError(message, hint=hint)


def _shown(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def stacks_in(path: Path, *, folder: Beneath | None) -> frozenset[str]:
    """The names of the stacks that a package channel_tools-stacks defines; ``folder`` is as for read_package.

    Raises IntegrityError for a damaged package, ConfigError if its stacks.yaml is not YAML.
    """
    for member, stream in stream_component(path, "pkg", folder=folder):
        if member.name == _STACKS_FILE and stream is not None:
            value = parse_yaml(yaml_text(stream.read(), path), path).value
            stacks = value.get("stacks") if isinstance(value, dict) else None
            return frozenset(stacks) if isinstance(stacks, dict) else frozenset()
    return frozenset()
