# SPDX-License-Identifier: BSD-3-Clause
"""The values of the publish stage, and what every place that can be published to has to offer.

A label is a channel of its own: ``main`` is the target's address itself, any other lies at ``label/NAME`` below it, as
on anaconda.org. So every label can be read by every client from static files, and promoting is linking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.channel import Foundation
    from channel_tools.channel.patches import Patch
    from channel_tools.channel.retention import Retention, RetentionPlan
    from channel_tools.progress import Progress

MAIN_LABEL = "main"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PackageFile:
    """A package file that can be published; ``foundation`` says that it was not built from a recipe of ours."""

    subdir: str
    file_name: str
    path: Path
    sha256: str
    size_bytes: int
    foundation: bool

    @property
    def key(self) -> str:
        """``subdir/file name``, its name in a channel."""
        return f"{self.subdir}/{self.file_name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSet:
    """What is published together: readers see all of ``files`` or none. ``name`` is for people (``stack udp``).

    ``foundation`` is what the packages were built on: a target holds packages of one foundation only, and with the
    registry foundation its packages are among ``files``.
    """

    name: str
    files: tuple[PackageFile, ...]
    foundation: Foundation


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class LabelPackage:
    """A package under a label; ``hidden`` says why new solves do not see it (None: they do), ``yanked`` why people
    took it back (None: they did not).
    """

    subdir: str
    file_name: str
    name: str
    version: str
    build: str
    build_number: int
    sha256: str
    size_bytes: int
    depends: tuple[str, ...]
    foundation: bool
    hidden: str | None
    yanked: str | None

    @property
    def key(self) -> str:
        """``subdir/file name``, its name in a channel."""
        return f"{self.subdir}/{self.file_name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishPlan:
    """What publishing a set under ``label`` would do; made without changing anything.

    ``upload`` are files the target lacks, ``link`` files whose bytes it has under another label, ``present`` files that
    are in place. A name that the target holds with other bytes is no plan but a ChannelError.
    """

    packages: PackageSet
    label: str
    upload: tuple[PackageFile, ...]
    link: tuple[PackageFile, ...]
    present: tuple[PackageFile, ...]

    @property
    def upload_bytes(self) -> int:
        """How much has to be sent."""
        return sum(file.size_bytes for file in self.upload)


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishReport:
    """What publishing did: the address that clients take for the label, and the files that are new there."""

    address: str
    label: str
    uploaded: tuple[str, ...]
    linked: tuple[str, ...]
    seconds: float


class Target(Protocol):
    """A place that packages are published to: a folder, a bucket, a server."""

    @property
    def address(self) -> str:
        """Where clients read label ``main``, without credentials."""
        ...

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with what is there, changing nothing. Raises ChannelError (a name has other bytes), NetworkError."""
        ...

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry the plan out so that readers see the whole set or nothing of it; running it again completes it.

        Raises NetworkError, ChannelError, IntegrityError, DiskFullError; what was sent before is kept for the next run.
        """
        ...

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Show the packages ``keys`` (``subdir/file name``) of label ``source`` under ``label`` as well, same bytes.

        Raises UsageError where the target has no labels, ChannelError for names that ``source`` does not list.
        """
        ...


@runtime_checkable
class CuratedTarget(Target, Protocol):
    """A target whose published packages can be looked after. Each change is atomic for readers and safe to repeat.

    All raise UsageError for a label that does not exist.
    """

    def labels(self) -> list[str]:
        """The labels that there are, main first; none before anything was published."""
        ...

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """Everything that the label holds, hidden packages too, in order."""
        ...

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str) -> None:
        """Hide packages from new solves; their files stay for lock files."""
        ...

    def restore(self, keys: tuple[str, ...], *, label: str) -> None:
        """Undo yank."""
        ...

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, on top of earlier patches or (``replace``) in their place."""
        ...

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide what is due by ``rule`` and delete what was hidden for long enough; with ``dry_run`` only say so."""
        ...
