# SPDX-License-Identifier: BSD-3-Clause
"""What every place that can be published to has to offer, and from an address to the place behind it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from channel_tools.system.errors import UsageError
from channel_tools.system.extras import needs_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.channel.listing import Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.publish.model import LabelPackage, PackageSet, PublishPlan, PublishReport
    from channel_tools.system.progress import Progress

    Opener = Callable[[str, Mapping[str, str]], "Target"]

KINDS: Mapping[str, tuple[str, str]] = {
    "": ("channel_tools.publish.folder", "open_folder"),
    "file": ("channel_tools.publish.folder", "open_folder"),
    "http": ("channel_tools.publish.server.target", "open_server"),
    "https": ("channel_tools.publish.server.target", "open_server"),
    "s3": ("channel_tools.publish.s3.address", "open_s3"),
    "anaconda": ("channel_tools.publish.third_party.target", "open_third_party"),
    "artifactory+http": ("channel_tools.publish.third_party.target", "open_third_party"),
    "artifactory+https": ("channel_tools.publish.third_party.target", "open_third_party"),
    "cloudsmith": ("channel_tools.publish.third_party.target", "open_third_party"),
    "prefix": ("channel_tools.publish.third_party.target", "open_third_party"),
    "quetz+http": ("channel_tools.publish.third_party.target", "open_third_party"),
    "quetz+https": ("channel_tools.publish.third_party.target", "open_third_party"),
}
"""The scheme of an address to the module, imported when it is asked for, and its function open(address, environ)."""


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
class MaintainedTarget(Target, Protocol):
    """A target whose published packages can be maintained. Each change is atomic for readers and safe to repeat.

    All raise UsageError for a label that does not exist.
    """

    def labels(self) -> list[str]:
        """The labels that there are, main first; none before anything was published."""
        ...

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """Everything that the label holds, hidden packages too, in order."""
        ...

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. Without a reason, undo that."""
        ...

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, on top of earlier patches or (``replace``) in their place."""
        ...

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide what is due by ``rule`` and delete what was hidden for long enough; with ``dry_run`` only say so."""
        ...


def open_target(address: str, *, environ: Mapping[str, str]) -> Target:
    """The target that ``address`` names: a path, or a URL whose scheme says what kind of place it is.

    ``environ`` is where credentials are found; nothing is contacted yet. Raises UsageError for an address of an unknown
    kind.
    """
    scheme = address.partition("://")[0].lower() if "://" in address else ""
    if scheme not in KINDS:
        known = ", ".join(f"{name}://" for name in sorted(KINDS) if name)
        message = f"{address}: nothing can be published to addresses that begin with {scheme}://"
        raise UsageError(message, hint=f"give a folder, or an address that begins with one of: {known}")
    module, function = KINDS[scheme]
    with needs_extra("s3", "publishing to a bucket"):
        opener = cast("Opener", getattr(importlib.import_module(module), function))
    return opener(address, environ)


def maintained(target: Target) -> MaintainedTarget:
    """The target as one whose packages can be maintained. Raises UsageError for one that only takes uploads."""
    if isinstance(target, MaintainedTarget):
        return target
    message = f"{target.address}: packages there cannot be yanked, patched or retained from here"
    raise UsageError(message, hint="use what the server itself offers for that")
