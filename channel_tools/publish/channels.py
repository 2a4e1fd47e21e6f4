# SPDX-License-Identifier: BSD-3-Clause
"""What targets share whose channels are files that we write: a folder (``folder.py``) and a bucket (``bucket/``).

Plans, promotion, listings and the rules of yank, hotfix and retention are here, once. How a change is made so that
readers see all of it or nothing differs and stays with the two: a folder has locks, links and renames, a bucket has
writes on condition, copies and a lease.
"""

from __future__ import annotations

import dataclasses
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from channel_tools.channel.listing import admitted, not_listed, with_patch, with_yanked, without_yanked
from channel_tools.channel.publish import check_package
from channel_tools.conda.package import PackageKey, PackageRef
from channel_tools.publish.model import LabelPackage, PublishPlan, PublishReport, label_address
from channel_tools.publish.store import NEVER_CHANGE_HINT
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractContextManager

    from channel_tools.channel import Foundation
    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.records import CachedPackage
    from channel_tools.page.write import PagedChannel
    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.system.progress import Progress


class LabelContent(Protocol):
    """What a label holds, as it was committed last."""

    @property
    def listing(self) -> Listing:
        """Which of it new solves see, and what people changed."""
        ...

    def package(self, key: str) -> CachedPackage | None:
        """The row of ``subdir/file name``, None when the label does not hold it."""
        ...

    def rows(self) -> Mapping[str, Mapping[str, CachedPackage]]:
        """The rows of everything that it holds, by subdir and file name."""
        ...

    def listed(self) -> Collection[str]:
        """``subdir/file name`` of what new solves see."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A set that comes under ``label``: ``files`` to be published, or packages that another label holds.

    ``rows`` are those of packages that were read already: all that another label holds, and what is known of ``files``.
    ``new`` are those that a plan found missing, ``patches`` of subdirs come with the packages.
    """

    name: str
    label: str
    based_on: Foundation
    packages: tuple[PackageRef, ...]
    files: Mapping[str, PackageFile] = field(default_factory=dict)
    rows: Mapping[str, CachedPackage] = field(default_factory=dict)
    new: tuple[PackageFile, ...] = ()
    patches: Mapping[str, Patch] = field(default_factory=dict)

    @property
    def wanted(self) -> dict[str, str]:
        """The sha256 of each package by name."""
        return {str(package.key): package.sha256 for package in self.packages}

    def names(self, *, foundation: bool) -> list[str]:
        """The names of the foundation's packages, or of the others."""
        return [str(package.key) for package in self.packages if package.foundation == foundation]

    def file(self, key: str) -> PackageFile:
        """The file of a package that no label holds. Raises ChannelError when it was there for promotion only."""
        if key not in self.files:
            message = f"{key}: was deleted while it was promoted to {self.label}"
            raise ChannelError(message, hint="run the same command again")
        return self.files[key]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Names of wanted packages by what is to be done for them to be under a label.

    ``link`` are those that other labels hold, ``present`` those that are in place. ``elsewhere`` says of every name
    which other label has it, with its row.
    """

    upload: tuple[str, ...]
    link: tuple[str, ...]
    present: tuple[str, ...]
    elsewhere: Mapping[str, tuple[str, CachedPackage]]


def compare(
    wanted: Mapping[str, str],
    own: LabelContent | None,
    others: Mapping[str, LabelContent],
    *,
    address_of: Callable[[str, str], str],
    label: str,
    heeded: Collection[str],
) -> Comparison:
    """Look at what a label and the ``others`` of its target hold under the wanted names (with their sha256).

    Raises ChannelError for a name that has other bytes under any label, had them before it was deleted, or was yanked
    under the label or one of ``heeded``. ``address_of(label, key)`` is for messages.
    """
    contents = ({} if own is None else {label: own}) | dict(others)
    for name, content in contents.items():
        binds = name == label or name in heeded
        admitted(content.listing if binds else dataclasses.replace(content.listing, yanked={}), wanted)
    found: dict[str, dict[str, CachedPackage]] = {}
    for name, content in contents.items():
        found[name] = {key: row for key in wanted if (row := content.package(key)) is not None}
        for key, row in found[name].items():
            if row.sha256 != wanted[key]:
                raise other_bytes(address_of(name, key), row.sha256, wanted[key])
    mine = found.pop(label, {})
    elsewhere: dict[str, tuple[str, CachedPackage]] = {}
    for name, rows in found.items():
        for key, row in rows.items():
            elsewhere.setdefault(key, (name, row))
    return Comparison(
        upload=tuple(key for key in wanted if key not in mine and key not in elsewhere),
        link=tuple(key for key in wanted if key not in mine and key in elsewhere),
        present=tuple(key for key in wanted if key in mine),
        elsewhere=elsewhere,
    )


def checked_row(file: PackageFile, *, indexed_ms: int = 0) -> CachedPackage:
    """Read a package in full before it is sent; returns its row for the index.

    Raises IntegrityError when it is damaged, or not the package that the plan saw.
    """
    row = check_package(file.path, indexed_ms=indexed_ms)
    if row.sha256 != file.sha256:
        message = f"{file.path}: has sha256 {row.sha256}; {file.sha256} was to be published"
        raise IntegrityError(message, hint="run the same command again")
    return row


def other_bytes(where: str, found: str, wanted: str) -> ChannelError:
    """The error for a name that is taken."""
    message = f"{where}: the target holds other bytes under this name (sha256 {found}), not {wanted}"
    return ChannelError(message, hint=NEVER_CHANGE_HINT)


class ChannelTarget(ABC):
    """A MaintainedTarget whose channels are files that we write; the abstract methods are what kinds differ in."""

    __slots__ = ()

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients read label ``main``."""

    @property
    @abstractmethod
    def clock(self) -> Callable[[], float]:
        """Gives seconds since the epoch."""

    @abstractmethod
    def labels(self) -> list[str]:
        """The labels that there are, main first."""

    @abstractmethod
    def has_page(self, label: str) -> bool:
        """Whether the label's channel was given a page for browsers, which follows each change."""

    @abstractmethod
    def paged(self, label: str) -> AbstractContextManager[PagedChannel]:
        """The label's channel with its lock or lease held, for what only its page needs.

        Raises UsageError or ChannelError where there is no channel.
        """

    @abstractmethod
    def _existing(self, label: str) -> tuple[LabelContent, Foundation] | None:
        """What the label holds and is based on, None when there is no such label."""

    @abstractmethod
    def _compare(self, wanted: Mapping[str, str], label: str, foundation: Foundation) -> Comparison:
        """What is to be done for the wanted packages to be under the label. Raises as compare, and FoundationError."""

    @abstractmethod
    def _add(self, change: Change, progress: Progress) -> Comparison:
        """Make the change in one step for readers; returns what had to be done."""

    @abstractmethod
    def _relist(self, label: str, change: Callable[[Listing], Listing]) -> None:
        """Change what a label that exists lists."""

    @abstractmethod
    def _retire(self, rule: Retention, *, label: str, elsewhere: Callable[[], frozenset[str]]) -> RetentionPlan:
        """Apply the rule to a label that exists, ``elsewhere`` being asked while nobody else writes."""

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with what is there, changing nothing. Raises ChannelError for a yanked name or one of other bytes."""
        wanted = {key: file.sha256 for key, file in packages.by_name().items()}
        found = self._compare(wanted, label, packages.foundation)
        return packages.plan(label, upload=found.upload, link=found.link, present=found.present)

    def publish(
        self, plan: PublishPlan, *, progress: Progress, rows: Mapping[str, CachedPackage] | None = None
    ) -> PublishReport:
        """Carry the plan out in one step for readers.

        ``rows`` are of files of the plan that were read in full before; a folder does not read them again.
        """
        packages = plan.packages
        change = Change(
            name=packages.name,
            label=plan.label,
            based_on=packages.foundation,
            packages=packages.files,
            files=packages.by_name(),
            rows=rows or {},
            new=(*plan.upload, *plan.link),
        )
        return self._carry_out(change, progress)

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Show packages of label ``source`` under ``label`` as well, with their patches; no bytes are sent."""
        content, foundation = self._must_exist(source)
        rows = {key: row for key in sorted(set(keys)) if (row := content.package(key)) is not None}
        hidden = not_listed(content.listing)
        if missing := sorted(key for key in keys if key not in rows or key in hidden):
            message = f"{label_address(self.address, source)}: label {source} does not list {missing[0]}"
            raise ChannelError(message, hint=f"publish it there first: channel_tools publish --label {source}")
        packages = _refs(rows, content.listing)
        change = Change(
            name=f"{source} to {label}",
            label=label,
            based_on=foundation,
            packages=packages,
            rows=rows,
            patches=_patches_of(content.listing, packages),
        )
        return self._carry_out(change, progress)

    def _carry_out(self, change: Change, progress: Progress) -> PublishReport:
        started = time.monotonic()
        found = self._add(change, progress)
        return PublishReport(
            address=label_address(self.address, change.label),
            label=change.label,
            uploaded=found.upload,
            linked=found.link,
            seconds=time.monotonic() - started,
        )

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """Everything that the label holds, hidden packages too, in order."""
        return label_packages(self._must_exist(label)[0])

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. Without a reason, undo that."""

        def change(listing: Listing) -> Listing:
            return without_yanked(listing, keys) if reason is None else with_yanked(listing, keys, reason)

        self._change_listing(label, change)

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, on top of earlier patches or (``replace``) in their place."""
        self._change_listing(label, lambda listing: with_patches(listing, patches, replace=replace))

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide what is due by ``rule`` and delete what was hidden for long enough; with ``dry_run`` only say so."""
        from channel_tools.channel.maintenance import plan_retention  # noqa: PLC0415 - imports rattler

        content, _foundation = self._must_exist(label)

        def elsewhere() -> frozenset[str]:
            others = (self._existing(name) for name in self.labels() if name != label)
            return frozenset(key for other in others if other is not None for key in other[0].listed())

        if dry_run:
            return plan_retention(content.listing, content.rows(), rule, elsewhere=elsewhere(), now_s=self.clock())
        return self._retire(rule, label=label, elsewhere=elsewhere)

    def _change_listing(self, label: str, change: Callable[[Listing], Listing]) -> None:
        self._must_exist(label)
        self._relist(label, change)

    def _must_exist(self, label: str) -> tuple[LabelContent, Foundation]:
        """What the label holds and is based on. Raises UsageError when there is no such label."""
        if (found := self._existing(label)) is None:
            known = ", ".join(self.labels()) or "none, nothing was published yet"
            raise UsageError(f"{self.address}: has no label {label!r}", hint=f"labels there: {known}")
        return found


def with_patches(listing: Listing, patches: Mapping[str, Patch], *, replace: bool) -> Listing:
    """The listing with patches of subdirs on top of the present ones, or in their place."""
    for subdir, patch in patches.items():
        listing = with_patch(listing, subdir, patch, replace=replace)
    return listing


def label_packages(content: LabelContent) -> tuple[LabelPackage, ...]:
    """Everything that a label holds, hidden packages too, in order."""
    listing, hidden = content.listing, not_listed(content.listing)
    foundation = {*listing.foundation, *listing.superseded}
    found = []
    for subdir, rows in content.rows().items():
        for file_name, row in rows.items():
            key, record = f"{subdir}/{file_name}", row.record
            package = LabelPackage(
                subdir=subdir,
                file_name=file_name,
                name=row.name,
                version=str(record["version"]),
                build=str(record["build"]),
                build_number=int(str(record["build_number"])),
                sha256=row.sha256,
                size_bytes=row.stamp.size_bytes,
                depends=row.depends,
                foundation=key in foundation,
                hidden=hidden.get(key),
                yanked=listing.yanked.get(key),
            )
            found.append(package)
    return tuple(sorted(found))


def _refs(rows: Mapping[str, CachedPackage], listing: Listing) -> tuple[PackageRef, ...]:
    foundation = {*listing.foundation, *listing.superseded}
    return tuple(
        PackageKey.parse(name).ref(row.sha256, row.stamp.size_bytes, foundation=name in foundation)
        for name, row in rows.items()
    )


def _patches_of(listing: Listing, packages: Iterable[PackageRef]) -> dict[str, Patch]:
    """What people changed in the records of these packages, by subdir."""
    names: dict[str, set[str]] = {subdir: set() for subdir in listing.patches}
    for package in packages:
        if package.subdir in names:
            names[package.subdir].add(package.file_name)
    parts = {subdir: patch.only(names[subdir]) for subdir, patch in listing.patches.items()}
    return {subdir: patch for subdir, patch in parts.items() if patch.names()}
