# SPDX-License-Identifier: BSD-3-Clause
"""Publishing to a folder. Labels share bytes by hard links; what one label has read in full no other reads again."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from channel_tools.channel import add_set, find_files, held_files, open_channel
from channel_tools.channel.listing import admitted
from channel_tools.channel.state import read_listing, subdirs_of
from channel_tools.errors import ChannelError
from channel_tools.publish.folder_labels import FolderLabels
from channel_tools.publish.labels import label_address
from channel_tools.publish.model import MAIN_LABEL, LabelPackage, PackageFile, PackageSet, PublishPlan, PublishReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.channel import HeldFile
    from channel_tools.channel.patches import Patch
    from channel_tools.channel.retention import Retention, RetentionPlan
    from channel_tools.channel.state import Listing, LoadedChannel
    from channel_tools.progress import Progress


def open_folder(address: str, environ: Mapping[str, str]) -> FolderTarget:
    """The folder that a path or a ``file://`` address names; it need not exist yet."""
    del environ
    path = Path(unquote(urlsplit(address).path)) if "://" in address else Path(address).expanduser()
    return FolderTarget(root=path.absolute())


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class FolderTarget:
    """A folder that is published to; see CuratedTarget for what its methods promise."""

    root: Path
    clock: Callable[[], float] = time.time
    wait_s: float = 60.0
    """How long to wait for another writer to end."""

    @property
    def address(self) -> str:
        """The ``file://`` address of label ``main``."""
        return self.root.as_uri()

    @property
    def _labels(self) -> FolderLabels:
        return FolderLabels(root=self.root, clock=self.clock, wait_s=self.wait_s)

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the folder, changing nothing. Raises ChannelError for a yanked name or one with other bytes."""
        place = self._labels.place(label)
        if not self._labels.is_there():
            return PublishPlan(packages=packages, label=label, upload=packages.files, link=(), present=())
        open_channel(self.root, foundation=packages.foundation)
        self._insist_on_admission(packages, label)
        keys = [file.key for file in packages.files]
        own = find_files(open_channel(place), keys) if place.exists() else {}
        others = self._labels.held_elsewhere(label, keys)
        parts: dict[str, list[PackageFile]] = {"upload": [], "link": [], "present": []}
        for file in packages.files:
            for held in (own.get(file.key), others.get(file.key)):
                _refuse_other_bytes(file, held)
            parts["present" if file.key in own else "link" if file.key in others else "upload"].append(file)
        return PublishPlan(
            packages=packages,
            label=label,
            upload=tuple(parts["upload"]),
            link=tuple(parts["link"]),
            present=tuple(parts["present"]),
        )

    def _insist_on_admission(self, packages: PackageSet, label: str) -> None:
        """Raise ChannelError for what was yanked under main or the label, or had other bytes under any label."""
        files = {file.key: file.sha256 for file in packages.files}
        for name in self._labels.names():
            listing = read_listing(open_channel(self._labels.place(name)))
            admitted(listing if name in {MAIN_LABEL, label} else dataclasses.replace(listing, yanked={}), files)

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry the plan out in one step for readers; the folder is made when it is not there."""
        return self._publish(plan, patches={}, progress=progress)

    def _publish(self, plan: PublishPlan, *, patches: Mapping[str, Patch], progress: Progress) -> PublishReport:
        started = time.monotonic()
        with self._labels.writer(plan.label, plan.packages.foundation) as writer:
            fresh = self.plan(plan.packages, label=plan.label)  # another publisher may have come between
            others = self._labels.held_elsewhere(plan.label, [file.key for file in fresh.link])
            sources = {file.key: file.path for file in fresh.upload}
            sources |= {file.key: others[file.key].path for file in fresh.link}
            sources |= {file.key: writer.channel.path / file.key for file in fresh.present}
            with progress.task(f"publish {plan.packages.name}", total=len(sources)) as task:
                own = [sources[file.key] for file in plan.packages.files if not file.foundation]
                foundation = [sources[file.key] for file in plan.packages.files if file.foundation]
                add_set(
                    writer, own, foundation, trusted={key: held.row for key, held in others.items()}, patches=patches
                )
                task.advance(len(sources))
        return PublishReport(
            address=label_address(self.address, plan.label),
            label=plan.label,
            uploaded=tuple(file.key for file in fresh.upload),
            linked=tuple(file.key for file in fresh.link),
            seconds=time.monotonic() - started,
        )

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Link packages of label ``source`` in under ``label`` as well, with their patches, in one step for readers."""
        channel = self._labels.existing(source)
        held = find_files(channel, keys)
        if missing := sorted(key for key in keys if key not in held or held[key].hidden):
            message = f"{channel.path}: label {source} does not list {missing[0]}"
            raise ChannelError(message, hint=f"publish it there first: channel_tools publish --label {source}")
        files = tuple(_package_file(key, held[key]) for key in sorted(set(keys)))
        packages = PackageSet(name=f"{source} to {label}", files=files, foundation=channel.foundation)
        return self._publish(
            self.plan(packages, label=label), patches=_patches_of(read_listing(channel), files), progress=progress
        )

    def labels(self) -> list[str]:
        """The labels that there are, main first."""
        return self._labels.names()

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """Everything that the label holds, hidden packages too, in order."""
        channel = self._labels.existing(label)
        yanked = read_listing(channel).yanked
        held = held_files(channel, subdirs_of(channel.path))
        return tuple(_label_package(key, file, yanked.get(key)) for key, file in held.items())

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str) -> None:
        """Hide packages from new solves; their files stay for lock files."""
        from channel_tools.channel.listing import with_yanked  # noqa: PLC0415

        self._relist(label, lambda loaded: with_yanked(loaded.listing, keys, reason))

    def restore(self, keys: tuple[str, ...], *, label: str) -> None:
        """Undo yank."""
        from channel_tools.channel.listing import without_yanked  # noqa: PLC0415

        self._relist(label, lambda loaded: without_yanked(loaded.listing, keys))

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, on top of earlier patches or (``replace``) in their place."""
        from channel_tools.channel.listing import with_patch  # noqa: PLC0415

        def patched(loaded: LoadedChannel) -> Listing:
            listing = loaded.listing
            for subdir, patch in patches.items():
                listing = with_patch(listing, subdir, patch, replace=replace)
            return listing

        self._relist(label, patched)

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide what is due by ``rule`` and delete what was hidden for long enough; with ``dry_run`` only say so."""
        from channel_tools.channel.curate import apply_retention, listed_names, preview_retention  # noqa: PLC0415

        channel = self._labels.existing(label)

        def elsewhere() -> frozenset[str]:
            others = [name for name in self._labels.names() if name != label]
            return frozenset().union(*(listed_names(open_channel(self._labels.place(name))) for name in others))

        if dry_run:
            return preview_retention(channel, rule, elsewhere=elsewhere(), now_s=self.clock())
        with self._labels.writer(label, channel.foundation) as writer:
            return apply_retention(writer, rule, elsewhere=elsewhere())

    def _relist(self, label: str, change: Callable[[LoadedChannel], Listing]) -> None:
        from channel_tools.channel.curate import relist  # noqa: PLC0415

        channel = self._labels.existing(label)
        with self._labels.writer(label, channel.foundation) as writer:
            relist(writer, change)


def _refuse_other_bytes(file: PackageFile, held: HeldFile | None) -> None:
    if held is None or held.sha256 == file.sha256:
        return
    message = (
        f"{held.path}: the target holds other bytes under this name (sha256 {held.sha256}) "
        f"than {file.path} ({file.sha256})"
    )
    raise ChannelError(message, hint="published files never change: raise the recipe's build number and build again")


def _patches_of(listing: Listing, files: Sequence[PackageFile]) -> dict[str, Patch]:
    """What people changed in the records of these packages, by subdir."""
    names = {subdir: {file.file_name for file in files if file.subdir == subdir} for subdir in listing.patches}
    parts = {subdir: patch.only(names[subdir]) for subdir, patch in listing.patches.items()}
    return {subdir: patch for subdir, patch in parts.items() if patch.names()}


def _package_file(key: str, held: HeldFile) -> PackageFile:
    subdir, _, file_name = key.partition("/")
    return PackageFile(
        subdir=subdir,
        file_name=file_name,
        path=held.path,
        sha256=held.sha256,
        size_bytes=held.size_bytes,
        foundation=held.foundation,
    )


def _label_package(key: str, held: HeldFile, yanked: str | None) -> LabelPackage:
    subdir, _, file_name = key.partition("/")
    record = held.row.record
    return LabelPackage(
        subdir=subdir,
        file_name=file_name,
        name=held.row.name,
        version=str(record["version"]),
        build=str(record["build"]),
        build_number=int(str(record["build_number"])),
        sha256=held.sha256,
        size_bytes=held.size_bytes,
        depends=held.row.depends,
        foundation=held.foundation,
        hidden=held.hidden,
        yanked=yanked,
    )
