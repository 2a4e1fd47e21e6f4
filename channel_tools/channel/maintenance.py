# SPDX-License-Identifier: BSD-3-Clause
"""Changes what a channel lists without publishing anything: yank, repodata patches, retention.

Pure functions decide what retention may delete. Every package that a lock file or a kept package may need is kept; a
requirement counts as needing every package that satisfies it, since a solver may choose any. What cannot be read may
need anything.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from channel_tools.channel.index import IndexReport, index_channel
from channel_tools.channel.listing import Retired, not_listed
from channel_tools.channel.state import LoadedChannel, load_channel, read_listing, write_listing
from channel_tools.conda.closure import Closures
from channel_tools.conda.package import PackageKey, remove_sidecars
from channel_tools.conda.specs import InvalidRecordError, InvalidSpecError, as_record, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from channel_tools.channel.listing import Listing
    from channel_tools.channel.records import CachedPackage

    Rows = Mapping[str, Mapping[str, CachedPackage]]
    """The packages of a channel by subdir and file name."""
    from collections.abc import Callable

    from channel_tools.channel.model import Channel, ChannelWriter

_MS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What to keep: the newest ``keep`` versions of each name, and everything added after ``older_than_s``.

    A version includes the build number, so all its variants are kept. ``locked_files`` are file names and
    ``locked_hashes`` sha256 or md5 in lock files. Other files are hidden at once and deleted ``grace_s`` later, since
    clients may have an index that still lists them. With ``removed`` (``subdir/file name``), nothing else is due, and
    these are whatever their age.
    """

    keep: int = 1
    older_than_s: float = 0.0
    locked_files: frozenset[str] = frozenset()
    locked_hashes: frozenset[str] = frozenset()
    grace_s: float = 24 * 3600.0
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionPlan:
    """What retention does to one channel: hides ``retire`` now, deletes ``delete``, which were hidden long enough.

    ``keep`` are packages that would be due, with the reason for keeping them. All are ``subdir/file name``.
    """

    retire: tuple[str, ...]
    delete: tuple[str, ...]
    keep: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """A package in the form that Closures needs."""

    subdir: str
    file_name: str
    row: CachedPackage
    index: Mapping[str, Any]
    listed: bool
    """Whether new solves see it."""
    replaced: bool
    """Whether it is hidden for good; what was yanked or removed by a patch may be listed again."""

    @property
    def key(self) -> str:
        return f"{self.subdir}/{self.file_name}"

    @property
    def name(self) -> str:
        return self.row.name


def plan_retention(listing: Listing, rows: Rows, rule: Retention, *, now_s: float) -> RetentionPlan:
    """What ``rule`` does now to a channel with the packages ``rows``; other labels have files of their own."""
    packages = _packages(listing, rows)
    if rule.removed:
        due = {package.key for package in packages} & rule.removed
    else:
        due = {package.key for package in packages if _is_due(package, rule, now_s=now_s)}
        due -= _newest([package for package in packages if package.listed], rule.keep)
    due -= set(listing.foundation)
    retired = listing.retired
    expired = {key for key, row in retired.items() if not row.deleted and now_s - row.since_s >= rule.grace_s}
    keep = {
        package.key: reason
        for package in packages
        if package.key in due | expired and (reason := _reason_to_keep(package, rule))
    }
    due -= keep.keys()
    current = [package for package in packages if not package.replaced]
    search = _Needs(due, [package for package in current if package.listed])
    search.add_needs_of([package for package in current if package.key not in due])
    keep |= search.needed
    at_once = due if rule.grace_s <= 0 else set[str]()
    return RetentionPlan(
        retire=tuple(sorted(due - keep.keys() - retired.keys())),
        delete=tuple(sorted((expired | at_once) - keep.keys())),
        keep=dict(sorted(keep.items())),
    )


def with_retired(listing: Listing, rows: Mapping[str, CachedPackage], *, now_s: float) -> Listing:
    """The listing with the packages ``rows`` (by ``subdir/file name``) retired, unless they are already."""
    new = {key: Retired(sha256=row.sha256, since_s=now_s) for key, row in rows.items() if key not in listing.retired}
    return dataclasses.replace(listing, retired=dict(sorted((listing.retired | new).items())))


def with_deleted(listing: Listing, names: Iterable[str]) -> Listing:
    """The listing after deleting the files ``names``: the names are remembered, so other bytes never get them."""
    deleted = set(names)
    retired = {
        key: dataclasses.replace(row, deleted=row.deleted or key in deleted) for key, row in listing.retired.items()
    }
    return dataclasses.replace(
        listing,
        retired=retired,
        superseded=tuple(key for key in listing.superseded if key not in deleted),
        hidden={key: reason for key, reason in listing.hidden.items() if key not in deleted},
    )


def _packages(listing: Listing, rows: Rows) -> list[_Candidate]:
    hidden = not_listed(listing)
    replaced = {*listing.superseded, *listing.hidden, *listing.retired}
    packages = []
    for subdir, in_subdir in rows.items():
        patch = listing.patches.get(subdir)
        for name, row in in_subdir.items():
            record = row.record if patch is None else patch.applied(name, row.record)
            key = f"{subdir}/{name}"
            packages.append(
                _Candidate(
                    subdir=subdir,
                    file_name=name,
                    row=row,
                    index=record,
                    listed=key not in hidden,
                    replaced=key in replaced,
                )
            )
    return packages


def _is_due(package: _Candidate, rule: Retention, *, now_s: float) -> bool:
    indexed_ms = package.index.get("indexed_timestamp")
    return not isinstance(indexed_ms, int) or now_s - indexed_ms / _MS >= rule.older_than_s


def _newest(packages: Iterable[_Candidate], keep: int) -> set[str]:
    """Packages whose version is among the newest ``keep`` of their name in their subdir."""
    by_name: defaultdict[tuple[str, str], defaultdict[Any, list[_Candidate]]] = defaultdict(lambda: defaultdict(list))
    for package in packages:
        by_name[package.subdir, package.name][_age(package)].append(package)
    chosen = set()
    for versions in by_name.values():
        for version in sorted(versions, reverse=True)[:keep]:
            chosen |= {package.key for package in versions[version]}
    return chosen


def _age(package: _Candidate) -> tuple[bool, Any, int]:
    """What orders the versions of a name; those that conda cannot order come before all others."""
    version, number = str(package.index.get("version")), package.index.get("build_number")
    try:
        record = as_record(package.name, version, build_number=number if isinstance(number, int) else 0)
    except InvalidRecordError:
        return False, version, 0
    return True, record.version, record.build_number


def _reason_to_keep(package: _Candidate, rule: Retention) -> str | None:
    if package.file_name in rule.locked_files or {package.row.sha256, package.index.get("md5")} & rule.locked_hashes:
        return "a lock file names it"
    return None


class _Needs:
    """Finds which of the packages ``due`` are needed by kept ones, among those that are ``listed``."""

    def __init__(self, due: set[str], listed: list[_Candidate]) -> None:
        self.needed: dict[str, str] = {}
        self._due = due
        self._listed = listed
        self._closures = Closures(listed)

    def add_needs_of(self, staying: Iterable[_Candidate]) -> None:
        """Add what kept packages need, what that needs, and so on."""
        todo, settled = list(staying), list[_Candidate]()
        while todo:
            while todo:
                settled.append(asking := todo.pop())
                todo += self._add_requirements(asking)
            for asking in settled:
                todo += self._add_partners(asking)

    def _add_requirements(self, asking: _Candidate) -> list[_Candidate]:
        try:
            # what a package makes others require that are built with it counts, too
            specs = list(texts_of(asking.index, "depends"))
            for key in ("run_exports", "extra_depends"):
                groups = asking.index.get(key)
                if isinstance(groups, dict):
                    specs += [text for kind in groups if "constrains" not in kind for text in texts_of(groups, kind)]
            return self._add(asking, self._satisfying(*specs), "may need it")
        except (InvalidSpecError, InvalidRecordError) as err:
            return self._add(asking, self._listed, f"may need it: {err}")

    def _add_partners(self, asking: _Candidate) -> list[_Candidate]:
        """What the package can be installed beside, if nothing that is kept would be left of it."""
        try:
            allowed = [(text, self._satisfying(text)) for text in texts_of(asking.index, "constrains")]
        except (InvalidSpecError, InvalidRecordError) as err:
            return self._add(asking, self._listed, f"may need it: {err}")
        lost = [(text, matching) for text, matching in allowed if all(self._is_gone(package) for package in matching)]
        return [
            package
            for text, matching in lost
            for package in self._add(asking, matching, f"is only compatible with {text}")
        ]

    def _satisfying(self, *specs: str) -> list[_Candidate]:
        return [package for text in specs for package in self._closures.satisfying(text, or_unknown=True)]

    def _is_gone(self, package: _Candidate) -> bool:
        return package.key in self._due and package.key not in self.needed

    def _add(self, asking: _Candidate, packages: Iterable[_Candidate], why: str) -> list[_Candidate]:
        new = [package for package in packages if self._is_gone(package)]
        self.needed |= {package.key: f"{asking.key} {why}" for package in new}
        return new


def relist(writer: ChannelWriter, change: Callable[[LoadedChannel], Listing]) -> IndexReport:
    """Replace the channel's listing by the one that ``change`` makes, and index it."""
    loaded = load_channel(writer.channel)
    listing = change(loaded)
    if listing != loaded.listing:
        write_listing(writer.channel, listing)
    return index_channel(writer, loaded=dataclasses.replace(loaded, listing=listing))


def listed_names(channel: Channel) -> frozenset[str]:
    """Everything (``subdir/file name``) that the channel's last index lists."""
    loaded = load_channel(channel)
    return frozenset(
        f"{subdir}/{name}"
        for subdir, state in loaded.states.items()
        for name in state.records.packages.keys() - set(state.removed)
    )


def apply_retention(writer: ChannelWriter, rule: Retention) -> RetentionPlan:
    """Hide what is due by ``rule`` and delete what was hidden for long enough; see plan_retention.

    The indexes no longer name a file before it is deleted. A name that was deleted is remembered with its hash.
    """
    now_s = writer.clock()
    loaded = load_channel(writer.channel)
    rows = {subdir: state.records.packages for subdir, state in loaded.states.items()}
    plan = plan_retention(loaded.listing, rows, rule, now_s=now_s)

    def retire(loaded: LoadedChannel) -> Listing:
        rows = {str(key): loaded.row(key) for key in map(PackageKey.parse, plan.retire)}
        return with_retired(loaded.listing, rows, now_s=now_s)

    relist(writer, retire)
    if plan.delete:
        for key in plan.delete:
            package = PackageKey.parse(key)
            remove_sidecars(writer.channel.files.at(package.subdir), package.file_name)
            writer.channel.files.remove(key)
        write_listing(writer.channel, with_deleted(read_listing(writer.channel), plan.delete))
        index_channel(writer)
    return plan
