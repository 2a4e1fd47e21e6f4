# SPDX-License-Identifier: BSD-3-Clause
"""Channels in a folder. Labels share files by hard links; what was read completely for one is not read for another.

The root is label ``main``, every other label is a channel folder at ``label/NAME`` below it. The root's writer lock
guards all of them, so a name cannot get other bytes under one label while it is published under another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import stat
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from channel_tools.channel import add_set, channel_writer, ensure_channel, indexed_files, open_channel
from channel_tools.channel.listing import admitted, not_listed, with_patch, with_yanked, without_yanked
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.publish import check_package
from channel_tools.channel.state import read_listing, read_state
from channel_tools.channel.store import record_further
from channel_tools.conda.addresses import local_path, parse_address, scheme_of
from channel_tools.conda.package import PackageKey, PackageRef, sidecar_of, subdirs_of
from channel_tools.conda.specs import text_or_none, track_features_of
from channel_tools.publish.model import (
    LABEL_FOLDER,
    MAIN_LABEL,
    NEVER_CHANGE_HINT,
    Comparison,
    LabelPackage,
    PublishPlan,
    PublishReport,
    is_label,
    label_address,
    label_path,
)
from channel_tools.system.beneath import Beneath, folder_of, status_in
from channel_tools.system.errors import ChannelError, IntegrityError, UsageError
from channel_tools.system.files import absolute_path, check_replaceable
from channel_tools.system.settings import user_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.channel import Channel, ChannelWriter, Foundation
    from channel_tools.channel.listing import Listing, Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.channel.records import CachedPackage
    from channel_tools.channel.state import SubdirState
    from channel_tools.publish.model import PackageFile, PackageSet
    from channel_tools.system.progress import Progress


def open_folder(address: str) -> FolderTarget:
    """The target for a path or a ``file://`` address; the folder need not exist yet.

    Raises UsageError if it does not name a folder, FileAccessError for a device, a pipe or a socket.
    """
    if not address:
        raise UsageError("'': not a place to publish to", hint="give a folder or an address")
    if scheme_of(address):
        parse_address(address)
    path = absolute_path(local_path(address) or user_path(address))
    check_replaceable(path, folder=True)
    return FolderTarget(root=path)


class FolderContent:
    """The content of a label's channel folder, read on demand; only intact files that exist."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._states: dict[str, SubdirState] = {}

    @cached_property
    def listing(self) -> Listing:
        """The content of listing.json."""
        return read_listing(self.channel)

    def package(self, key: str) -> CachedPackage | None:
        """The row of a file, if it exists."""
        if self.channel.files.file_stat(key) is None or key in self.listing.incoming:
            return None
        parsed = PackageKey.parse(key)
        if parsed.subdir not in self._states:
            self._states[parsed.subdir] = read_state(self.channel, parsed.subdir)
        return self._states[parsed.subdir].records.packages.get(parsed.file_name)

    def rows(self) -> dict[str, dict[str, CachedPackage]]:
        """The rows of all existing files."""
        rows: dict[str, dict[str, CachedPackage]] = {subdir: {} for subdir in subdirs_of(self.channel.files)}
        for key, file in indexed_files(self.channel, rows).items():
            rows[key.subdir][key.file_name] = file.row
        return rows

    def listed(self) -> Collection[str]:
        """The names in the latest index."""
        from channel_tools.channel.maintenance import listed_names  # noqa: PLC0415 - imports rattler

        return listed_names(self.channel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A set to add to ``label``: ``files`` to be published, or packages that another label has.

    Files that the target turns out not to need may be missing. ``rows`` are those of packages that were already read:
    all that another label has, and those known of ``files``. ``patches`` of subdirs come with the packages,
    ``corrections`` only with those that the label lacks: it may list others otherwise since.
    """

    name: str
    label: str
    based_on: Foundation
    packages: tuple[PackageRef, ...]
    files: Mapping[str, PackageFile] = field(default_factory=dict)
    rows: Mapping[str, CachedPackage] = field(default_factory=dict)
    patches: Mapping[str, Patch] = field(default_factory=dict)
    corrections: Mapping[str, Patch] = field(default_factory=dict)

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
    own: FolderContent | None,
    others: Mapping[str, FolderContent],
    *,
    address_of: Callable[[str, str], str],
    label: str,
) -> LabelComparison:
    """Compare the wanted names (with their sha256) with what a label and the ``others`` of its target have.

    Raises ChannelError for a name that has other bytes under any label, had other bytes before it was deleted, or was
    yanked under the label or under main: what was yanked only under a third label may be added to this one.
    ``address_of(label, key)`` is for messages.
    """
    contents = ({} if own is None else {label: own}) | dict(others)
    for name, content in contents.items():
        binds = name in {label, MAIN_LABEL}
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


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderTarget:
    """A folder to publish to, a MaintainedTarget; it is created if missing."""

    root: Path
    clock: Callable[[], float] = time.time
    wait_s: float = 60.0
    """How long to wait for another writer to finish."""
    within: Path | None = None
    """A folder that others can write to and that files to be published are in, such as a server's uploads."""
    changed: Callable[[ChannelWriter], object] = lambda _writer: None
    """Called after each change of a label, while its writer's lock is still held."""

    @property
    def address(self) -> str:
        """The ``file://`` address of label ``main``."""
        return self.root.as_uri()

    def labels(self) -> list[str]:
        """The existing labels, main first. Raises ChannelError if the root is not a channel of channel_tools."""
        if not self._is_there():
            return []
        files = Beneath(root=self.root)
        names = [f"{LABEL_FOLDER}/{name}" for name in files.names(LABEL_FOLDER) if is_label(name)]
        folders = [name for name in names if (status := files.stat(name)) and stat.S_ISDIR(status.st_mode)]
        labels = [name for name in folders if files.stat(f"{name}/{RECORD_FOLDER}") is not None]
        return [MAIN_LABEL, *(name.removeprefix(f"{LABEL_FOLDER}/") for name in labels)]

    def _is_there(self) -> bool:
        """Whether the channel exists. Raises ChannelError if the root is not a channel of channel_tools."""
        if not self.root.exists() or not Beneath(root=self.root).names():
            return False
        open_channel(self.root)
        return True

    def label_folder(self, label: str) -> Path:
        """The folder of a label's channel, which may not exist yet. Raises UsageError for an invalid label name."""
        return self.root / label_path(label)

    def open_label(self, label: str) -> Channel:
        """The channel of a label, whose links stay in the root. Raises what open_channel does."""
        return open_channel(self.label_folder(label), within=self.root)

    def foundation(self) -> Foundation | None:
        """The recorded foundation; None before the first publishing."""
        existing = self._existing(MAIN_LABEL)
        return None if existing is None else existing.channel.foundation

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """All packages of the label, including hidden ones, sorted."""
        content = self._must_exist(label)
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

    def _existing(self, label: str) -> FolderContent | None:
        is_there = self._is_there() and Beneath(root=self.root).stat(label_path(label)) is not None
        return FolderContent(self.open_label(label)) if is_there else None

    def _must_exist(self, label: str) -> FolderContent:
        """The label's content. Raises UsageError if there is no such label."""
        if (existing := self._existing(label)) is None:
            known = ", ".join(self.labels()) or "none, nothing has been published yet"
            raise UsageError(f"{self.address}: has no label {label!r}", hint=f"labels there: {known}")
        return existing

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the target, changing nothing. Raises ChannelError for a yanked name or one with other bytes."""
        hashes = {key: file.sha256 for key, file in packages.by_name().items()}
        compared = self._compare(hashes, label, packages.foundation)
        comparison = Comparison(upload=compared.upload, link=compared.link, present=compared.present)
        return PublishPlan(packages=packages, label=label, comparison=comparison)

    def _compare(self, hashes: Mapping[str, str], label: str, foundation: Foundation) -> LabelComparison:
        """What has to be done to add the wanted packages to the label. Raises as compare, and FoundationError."""
        labels = self.labels()
        if labels:
            open_channel(self.root, foundation=foundation)
        return compare(
            hashes,
            self._existing(label),
            {name: FolderContent(self.open_label(name)) for name in labels if name != label},
            address_of=lambda name, key: str(self.label_folder(name) / key),
            label=label,
        )

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry out the plan, atomically for readers."""
        packages = plan.packages
        change = Change(
            name=packages.name,
            label=plan.label,
            based_on=packages.foundation,
            packages=packages.files,
            files=packages.by_name(),
            corrections=packages.patches,
        )
        return self._add(change, progress)

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

        They are not read again. Raises ChannelError if the target needs others.
        """
        change = Change(
            name=packages.name,
            label=label,
            based_on=packages.foundation,
            packages=packages.files,
            files={str(file.key): file for file in received},
            rows=rows,
            corrections=packages.patches,
        )
        return self._add(change, progress)

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Add packages of label ``source`` to ``label``, with their patches; no bytes are copied."""
        content = self._must_exist(source)
        rows = {key: row for key in sorted(set(keys)) if (row := content.package(key)) is not None}
        hidden = not_listed(content.listing)
        if missing := sorted(key for key in keys if key not in rows or key in hidden):
            message = f"{label_address(self.address, source)}: label {source} does not list {missing[0]}"
            raise ChannelError(message, hint=f"publish it there first: channel_tools publish --label {source}")
        foundation = {*content.listing.foundation, *content.listing.superseded}
        packages = tuple(
            PackageKey.parse(name).ref(row.sha256, row.stamp.size_bytes, foundation=name in foundation)
            for name, row in rows.items()
        )
        names: dict[str, set[str]] = {subdir: set() for subdir in content.listing.patches}
        for package in packages:
            if package.subdir in names:
                names[package.subdir].add(package.file_name)
        parts = {subdir: patch.only(names[subdir]) for subdir, patch in content.listing.patches.items()}
        change = Change(
            name=f"{source} to {label}",
            label=label,
            based_on=content.channel.foundation,
            packages=packages,
            rows=rows,
            patches={subdir: patch for subdir, patch in parts.items() if patch.names()},
        )
        return self._add(change, progress)

    def _add(self, change: Change, progress: Progress) -> PublishReport:
        """Make the change, atomically for readers."""
        started = time.monotonic()
        with self._writer(change.label, change.based_on) as writer:
            comparison = self._compare(
                change.hashes, change.label, change.based_on
            )  # again: others may have published in the meantime
            sources = {key: change.file(key).path for key in comparison.upload}
            sources |= {key: self.label_folder(comparison.elsewhere[key][0]) / key for key in comparison.link}
            sources |= {
                key: self._attested_file(change, key) or writer.channel.path / key for key in comparison.present
            }
            known = {key: row for key, row in change.rows.items() if row.sha256 == change.hashes.get(key)}
            known |= {key: comparison.elsewhere[key][1] for key in comparison.link}
            entering = {PackageKey.parse(key).file_name for key in (*comparison.upload, *comparison.link)}
            corrections = {subdir: patch.only(entering) for subdir, patch in change.corrections.items()}
            with progress.task(f"publish {change.name}", total=len(sources)) as task:
                add_set(
                    writer,
                    {PackageKey.parse(key): sources[key] for key in change.names(foundation=False)},
                    {PackageKey.parse(key): sources[key] for key in change.names(foundation=True)},
                    trusted={PackageKey.parse(key): row for key, row in known.items()},
                    patches={**change.patches, **corrections},
                    expected_hashes={PackageKey.parse(key): sha256 for key, sha256 in change.hashes.items()},
                    within=self.within,
                    checks_change=True,
                )
                task.advance(len(sources))
        return PublishReport(
            address=label_address(self.address, change.label),
            label=change.label,
            uploaded=comparison.upload,
            linked=comparison.link,
            seconds=time.monotonic() - started,
        )

    def _attested_file(self, change: Change, key: str) -> Path | None:
        """The file to be published, if it is available with attestations that the label may lack."""
        file = change.files.get(key)
        if file is None:
            return None
        folder = folder_of(file.path, self.within)
        paths = (file.path, sidecar_of(file.path))
        return file.path if all(status_in(path, folder) is not None for path in paths) else None

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. With ``reason`` None, undo that."""

        def change(listing: Listing) -> Listing:
            return without_yanked(listing, keys) if reason is None else with_yanked(listing, keys, reason)

        self._change_listing(label, change)

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, in addition to earlier patches or (``replace``) instead of them."""

        def change(listing: Listing) -> Listing:
            for subdir, patch in patches.items():
                listing = with_patch(listing, subdir, patch, replace=replace)
            return listing

        self._change_listing(label, change)

    def _change_listing(self, label: str, change: Callable[[Listing], Listing]) -> None:
        from channel_tools.channel.maintenance import relist  # noqa: PLC0415 - imports rattler

        foundation = self._must_exist(label).channel.foundation
        with self._writer(label, foundation) as writer:
            relist(writer, lambda loaded: change(loaded.listing))

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide packages as ``rule`` says and delete those hidden long enough; with ``dry_run`` only return the plan."""
        from channel_tools.channel.maintenance import apply_retention, plan_retention  # noqa: PLC0415 - imports rattler

        content = self._must_exist(label)
        if dry_run:
            return plan_retention(content.listing, content.rows(), rule, now_s=self.clock())
        with self._writer(label, content.channel.foundation) as writer:
            return apply_retention(writer, rule)

    @contextlib.contextmanager
    def _writer(self, label: str, foundation: Foundation) -> Iterator[ChannelWriter]:
        """The label's channel with its lock and the root's held; both channels are created if missing.

        If the block ends without an error, ``changed`` is told. Raises ChannelError if another publisher holds the lock
        for longer than ``wait_s``.
        """
        label_folder = self.label_folder(label)
        with contextlib.ExitStack() as stack:
            for path in dict.fromkeys((self.root, label_folder)):
                channel = ensure_channel(path, foundation, within=self.root)
                writer = stack.enter_context(channel_writer(channel, clock=self.clock, wait_s=self.wait_s))
                record_further(channel)
            yield writer
            self.changed(writer)


def checked_row(file: PackageFile) -> CachedPackage:
    """Read a package completely before it is sent; returns its row for the index.

    Raises IntegrityError if it is damaged, or is not the package that was planned.
    """
    row = check_package(file.path, subdir=file.subdir)
    if row.sha256 != file.sha256:
        message = f"{file.path}: has sha256 {row.sha256}; expected {file.sha256}, as planned"
        raise IntegrityError(message, hint="run the same command again")
    return row


def other_bytes(where: str, sha256: str, expected: str) -> ChannelError:
    """The error for a name that is taken."""
    message = f"{where}: the target has other bytes under this name: sha256 {sha256}; expected {expected}"
    return ChannelError(message, hint=NEVER_CHANGE_HINT)
