# SPDX-License-Identifier: BSD-3-Clause
"""Which packages a channel may part with. Pure: the caller hides and deletes.

Whatever a lock file, another label or a package that stays may ask for stays. A requirement is taken to ask for every
package that meets it, since a solver may choose any.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rattler import Version
from rattler.exceptions import InvalidVersionError

from channel_tools.channel.content import not_listed
from channel_tools.channel.state import Retired
from channel_tools.packages.closure import Closures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import Listing

    Held = Mapping[str, Mapping[str, CachedPackage]]
    """The packages of a channel by subdir and file name."""

_MS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What people want to keep: the newest ``keep`` versions of each name, and all that came after ``older_than_s``.

    A version counts with its build number, so all variants of it stay. ``locked_files`` are file names and
    ``locked_hashes`` sha256 or md5 that lock files name. Files that go are hidden at once and deleted ``grace_s``
    later, since clients may hold an index that still lists them.
    """

    keep: int = 1
    older_than_s: float = 0.0
    locked_files: frozenset[str] = frozenset()
    locked_hashes: frozenset[str] = frozenset()
    grace_s: float = 24 * 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPlan:
    """What retention does to one channel: ``retire`` are hidden now, ``delete`` were hidden for long enough.

    ``kept`` are packages that would be due, with what keeps them. All are ``subdir/file name``.
    """

    retire: tuple[str, ...]
    delete: tuple[str, ...]
    kept: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Package:
    """A package as Closures asks for it."""

    key: str
    row: CachedPackage
    index: Mapping[str, Any]
    listed: bool

    @property
    def file_name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def subdir(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.row.name


def plan_retention(
    listing: Listing, held: Held, rule: Retention, *, elsewhere: frozenset[str], now_s: float
) -> RetentionPlan:
    """What ``rule`` does to a channel now that holds ``held``; ``elsewhere`` are the names that other labels list."""
    packages = _packages(listing, held)
    due = {package.key for package in packages if _is_due(package, rule, now_s=now_s)}
    due -= _newest([package for package in packages if package.listed], rule.keep)
    due -= set(listing.foundation)
    kept = {
        package.key: reason
        for package in packages
        if package.key in due and (reason := _held_by(package, rule, elsewhere))
    }
    due -= kept.keys()
    kept |= _needed([package for package in packages if package.listed], due)
    retired = listing.retired
    return RetentionPlan(
        retire=tuple(sorted(due - kept.keys() - retired.keys())),
        delete=tuple(
            sorted(
                {key for key, row in retired.items() if not row.deleted and now_s - row.since_s >= rule.grace_s}
                | {key for key in due - kept.keys() if rule.grace_s <= 0}
            )
        ),
        kept=dict(sorted(kept.items())),
    )


def with_retired(listing: Listing, rows: Mapping[str, CachedPackage], *, now_s: float) -> Listing:
    """The listing with the packages ``rows`` (by ``subdir/file name``) retired, unless they are already."""
    new = {key: Retired(sha256=row.sha256, since_s=now_s) for key, row in rows.items() if key not in listing.retired}
    return dataclasses.replace(listing, retired=dict(sorted((listing.retired | new).items())))


def with_deleted(listing: Listing, names: Iterable[str]) -> Listing:
    """The listing once the files ``names`` are gone: their names stay, so that other bytes never take them."""
    gone = set(names)
    retired = {
        key: dataclasses.replace(row, deleted=row.deleted or key in gone) for key, row in listing.retired.items()
    }
    return dataclasses.replace(
        listing,
        retired=retired,
        superseded=tuple(key for key in listing.superseded if key not in gone),
        hidden={key: reason for key, reason in listing.hidden.items() if key not in gone},
    )


def _packages(listing: Listing, held: Held) -> list[_Package]:
    hidden = not_listed(listing)
    found = []
    for subdir, rows in held.items():
        patch = listing.patches.get(subdir)
        for name, row in rows.items():
            record = row.record if patch is None else patch.applied(name, row.record)
            key = f"{subdir}/{name}"
            found.append(_Package(key=key, row=row, index=record, listed=key not in hidden))
    return found


def _is_due(package: _Package, rule: Retention, *, now_s: float) -> bool:
    indexed_ms = package.index.get("indexed_timestamp")
    return not isinstance(indexed_ms, int) or now_s - indexed_ms / _MS >= rule.older_than_s


def _newest(packages: Iterable[_Package], keep: int) -> set[str]:
    """Packages whose version is among the newest ``keep`` of their name in their subdir."""
    by_name: defaultdict[tuple[str, str], defaultdict[tuple[str, int], list[_Package]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for package in packages:
        version = (str(package.index.get("version")), int(package.index.get("build_number", 0)))
        by_name[package.subdir, package.name][version].append(package)
    chosen = set()
    for versions in by_name.values():
        for version in sorted(versions, key=_age, reverse=True)[:keep]:
            chosen |= {package.key for package in versions[version]}
    return chosen


def _age(version: tuple[str, int]) -> tuple[bool, Any, int]:
    try:
        return True, Version(version[0]), version[1]
    except InvalidVersionError:
        return False, version[0], version[1]


def _held_by(package: _Package, rule: Retention, elsewhere: frozenset[str]) -> str | None:
    if package.file_name in rule.locked_files or {package.row.sha256, package.index.get("md5")} & rule.locked_hashes:
        return "a lock file names it"
    return "another label lists it" if package.key in elsewhere else None


def _needed(listed: list[_Package], due: set[str]) -> dict[str, str]:
    """Those of ``due`` that a package which stays may ask for, directly or not, with the one that asks."""
    closures = Closures(listed)
    needed: dict[str, str] = {}
    todo = [package for package in listed if package.key not in due]
    while todo:
        asking = todo.pop()
        for package in closures.direct(asking):
            if package.key in due and package.key not in needed:
                needed[package.key] = f"{asking.key} may need it"
                todo.append(package)
    return needed
