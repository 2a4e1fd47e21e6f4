# SPDX-License-Identifier: BSD-3-Clause
"""The code shared by targets whose channel files we write: a folder (``folder.py``) and a bucket (``bucket/``).

Plans, promotion, listings and the rules of yank, hotfix and retention are here. How a change is made atomic for readers
differs: a folder has locks, links and renames, a bucket has conditional writes, copies and a lease.
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
from channel_tools.conda.specs import text_or_none, track_features_of
from channel_tools.publish.model import (
    MAIN_LABEL,
    Comparison,
    LabelPackage,
    PublishPlan,
    PublishReport,
    label_address,
)
from channel_tools.publish.store import NEVER_CHANGE_HINT
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from channel_tools.channel import Foundation
    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.records import CachedPackage
    from channel_tools.page.write import PagedChannel
    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.system.progress import Progress


class LabelContent(Protocol):
    """The content of a label, as last committed."""

    @property
    def listing(self) -> Listing:
        """Which packages new solves see, and what people changed."""
        ...

    def package(self, key: str) -> CachedPackage | None:
        """The row of ``subdir/file name``, None if the label does not have it."""
        ...

    def rows(self) -> Mapping[str, Mapping[str, CachedPackage]]:
        """The rows of all its packages, by subdir and file name."""
        ...

    def listed(self) -> Collection[str]:
        """The ``subdir/file name`` of the packages that new solves see."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A set to add to ``label``: ``files`` to be published, or packages that another label has.

    Files that the target turns out not to need may be missing. ``rows`` are those of packages that were already read:
    all that another label has, and those known of ``files``. ``new`` are the packages that a plan found missing;
    ``patches`` of subdirs come with the packages.
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
    def hashes(self) -> dict[str, str]:
        """The sha256 of each package by name."""
        return {str(package.key): package.sha256 for package in self.packages}

    def names(self, *, foundation: bool) -> list[str]:
        """The names of the foundation's packages, or of the others."""
        return [str(package.key) for package in self.packages if package.foundation == foundation]

    def file(self, key: str) -> PackageFile:
        """The file of a package that no label has. Raises ChannelError if it is not here."""
        if key in self.files:
            return self.files[key]
        if key in self.rows:
            message = f"{key}: was deleted while it was being promoted to {self.label}"
        else:
            message = f"{key}: is missing in {self.name}, and no label of the channel has it"
        raise ChannelError(message, hint="run the same command again")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelComparison(Comparison):
    """A Comparison with where else the packages are: by name, the other label that has it, and its row."""

    elsewhere: Mapping[str, tuple[str, CachedPackage]]


def compare(
    hashes: Mapping[str, str],
    own: LabelContent | None,
    others: Mapping[str, LabelContent],
    *,
    address_of: Callable[[str, str], str],
    label: str,
    heeded: Collection[str],
) -> LabelComparison:
    """Compare the wanted names (with their sha256) with what a label and the ``others`` of its target have.

    Raises ChannelError for a name that has other bytes under any label, had other bytes before it was deleted, or was
    yanked under the label or one of ``heeded``. ``address_of(label, key)`` is for messages.
    """
    contents = ({} if own is None else {label: own}) | dict(others)
    for name, content in contents.items():
        binds = name == label or name in heeded
        admitted(content.listing if binds else dataclasses.replace(content.listing, yanked={}), hashes)
    by_label: dict[str, dict[str, CachedPackage]] = {}
    for name, content in contents.items():
        by_label[name] = {key: row for key in hashes if (row := content.package(key)) is not None}
        for key, row in by_label[name].items():
            if row.sha256 != hashes[key]:
                raise other_bytes(address_of(name, key), row.sha256, hashes[key])
    mine = by_label.pop(label, {})
    elsewhere: dict[str, tuple[str, CachedPackage]] = {}
    for name, rows in by_label.items():
        for key, row in rows.items():
            elsewhere.setdefault(key, (name, row))
    return LabelComparison(
        upload=tuple(key for key in hashes if key not in mine and key not in elsewhere),
        link=tuple(key for key in hashes if key not in mine and key in elsewhere),
        present=tuple(key for key in hashes if key in mine),
        elsewhere=elsewhere,
    )


def checked_row(file: PackageFile, *, indexed_ms: int = 0) -> CachedPackage:
    """Read a package completely before it is sent; returns its row for the index.

    Raises IntegrityError if it is damaged, or is not the package that was planned.
    """
    row = check_package(file.path, indexed_ms=indexed_ms, subdir=file.subdir)
    if row.sha256 != file.sha256:
        message = f"{file.path}: has sha256 {row.sha256}; expected {file.sha256}, as planned"
        raise IntegrityError(message, hint="run the same command again")
    return row


def other_bytes(where: str, sha256: str, expected: str) -> ChannelError:
    """The error for a name that is taken."""
    message = f"{where}: the target has other bytes under this name: sha256 {sha256}; expected {expected}"
    return ChannelError(message, hint=NEVER_CHANGE_HINT)


class ChannelTarget(ABC):
    """A MaintainedTarget whose channel files we write; the abstract methods are what differs between the kinds."""

    __slots__ = ()

    @property
    @abstractmethod
    def address(self) -> str:
        """The address of label ``main`` for clients."""

    @property
    @abstractmethod
    def clock(self) -> Callable[[], float]:
        """A function that returns seconds since the epoch."""

    @abstractmethod
    def labels(self) -> list[str]:
        """The existing labels, main first."""

    @abstractmethod
    def has_page(self, label: str) -> bool:
        """Whether the label's channel has a page for browsers, which is updated with each change."""

    @abstractmethod
    def paged(self, label: str) -> AbstractContextManager[PagedChannel]:
        """The label's channel with its lock or lease held, for changes of its page only.

        Raises UsageError or ChannelError if there is no channel.
        """

    @abstractmethod
    def _existing(self, label: str) -> tuple[LabelContent, Foundation] | None:
        """The label's content and foundation, None if there is no such label."""

    @abstractmethod
    def _compare(self, hashes: Mapping[str, str], label: str, foundation: Foundation) -> LabelComparison:
        """What has to be done to add the wanted packages to the label. Raises as compare, and FoundationError."""

    @abstractmethod
    def _add(self, change: Change, progress: Progress) -> Comparison:
        """Make the change, atomically for readers; returns what had to be done."""

    @abstractmethod
    def _relist(self, label: str, change: Callable[[Listing], Listing]) -> None:
        """Change the listing of an existing label."""

    @abstractmethod
    def _retire(self, rule: Retention, *, label: str, elsewhere: Callable[[], frozenset[str]]) -> RetentionPlan:
        """Apply the rule to an existing label; ``elsewhere`` is called while nobody else writes."""

    def foundation(self) -> Foundation | None:
        """The recorded foundation; None before the first publishing."""
        existing = self._existing(MAIN_LABEL)
        return None if existing is None else existing[1]

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the target, changing nothing. Raises ChannelError for a yanked name or one with other bytes."""
        hashes = {key: file.sha256 for key, file in packages.by_name().items()}
        compared = self._compare(hashes, label, packages.foundation)
        comparison = Comparison(upload=compared.upload, link=compared.link, present=compared.present)
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry out the plan, atomically for readers."""
        packages = plan.packages
        change = Change(
            name=packages.name,
            label=plan.label,
            based_on=packages.foundation,
            packages=packages.files,
            files=packages.by_name(),
            new=(*plan.upload, *plan.link),
        )
        return self._carry_out(change, progress)

    def publish_received(
        self,
        packages: PackageSet,
        received: Sequence[PackageFile],
        *,
        label: str,
        rows: Mapping[str, CachedPackage],
        progress: Progress,
    ) -> PublishReport:
        """Publish a set of which only the files ``received`` are here, read completely: ``rows`` are theirs.

        A folder does not read them again. Raises ChannelError if the target needs others.
        """
        change = Change(
            name=packages.name,
            label=label,
            based_on=packages.foundation,
            packages=packages.files,
            files={str(file.key): file for file in received},
            rows=rows,
        )
        return self._carry_out(change, progress)

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Add packages of label ``source`` to ``label``, with their patches; no bytes are sent."""
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
        comparison = self._add(change, progress)
        return PublishReport(
            address=label_address(self.address, change.label),
            label=change.label,
            uploaded=comparison.upload,
            linked=comparison.link,
            seconds=time.monotonic() - started,
        )

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """All packages of the label, including hidden ones, sorted."""
        return label_packages(self._must_exist(label)[0])

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. With ``reason`` None, undo that."""

        def change(listing: Listing) -> Listing:
            return without_yanked(listing, keys) if reason is None else with_yanked(listing, keys, reason)

        self._change_listing(label, change)

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, in addition to earlier patches or (``replace``) instead of them."""
        self._change_listing(label, lambda listing: with_patches(listing, patches, replace=replace))

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide packages as ``rule`` says and delete those hidden long enough; with ``dry_run`` only return the plan."""
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
        """The label's content and foundation. Raises UsageError if there is no such label."""
        if (existing := self._existing(label)) is None:
            known = ", ".join(self.labels()) or "none, nothing has been published yet"
            raise UsageError(f"{self.address}: has no label {label!r}", hint=f"labels there: {known}")
        return existing


def with_patches(listing: Listing, patches: Mapping[str, Patch], *, replace: bool) -> Listing:
    """The listing with patches of subdirs added to the present ones, or replacing them."""
    for subdir, patch in patches.items():
        listing = with_patch(listing, subdir, patch, replace=replace)
    return listing


def label_packages(content: LabelContent) -> tuple[LabelPackage, ...]:
    """All packages of a label, including hidden ones, sorted."""
    listing, hidden = content.listing, not_listed(content.listing)
    foundation = {*listing.foundation, *listing.superseded}
    packages = []
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
                md5=text_or_none(record.get("md5")),
                license=text_or_none(record.get("license")),
                license_family=text_or_none(record.get("license_family")),
                features=text_or_none(record.get("features")),
                track_features=track_features_of(record),
            )
            packages.append(package)
    return tuple(sorted(packages))


def _refs(rows: Mapping[str, CachedPackage], listing: Listing) -> tuple[PackageRef, ...]:
    foundation = {*listing.foundation, *listing.superseded}
    return tuple(
        PackageKey.parse(name).ref(row.sha256, row.stamp.size_bytes, foundation=name in foundation)
        for name, row in rows.items()
    )


def _patches_of(listing: Listing, packages: Iterable[PackageRef]) -> dict[str, Patch]:
    """The patches of the records of these packages, by subdir."""
    names: dict[str, set[str]] = {subdir: set() for subdir in listing.patches}
    for package in packages:
        if package.subdir in names:
            names[package.subdir].add(package.file_name)
    parts = {subdir: patch.only(names[subdir]) for subdir, patch in listing.patches.items()}
    return {subdir: patch for subdir, patch in parts.items() if patch.names()}
