# SPDX-License-Identifier: BSD-3-Clause
"""The interface of publishing targets, and opening the target for an address."""

from __future__ import annotations

import dataclasses
import importlib
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from channel_tools.conda.addresses import is_misspelled, scheme_of, without_credentials
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.channel import ChannelWriter, Foundation
    from channel_tools.channel.listing import Patch
    from channel_tools.channel.maintenance import Retention, RetentionPlan
    from channel_tools.publish.model import LabelPackage, PackageSet, PublishPlan, PublishReport
    from channel_tools.system.progress import Progress

    Opener = Callable[[str, Mapping[str, str]], "Target"]


BUCKET = "s3"
"""The scheme of buckets, which are no targets: ``publish`` copies a channel's folder there (``publish/bucket.py``)."""


class Kind(NamedTuple):
    """A kind of target: its module, imported on demand, and the function open(address, environ) there."""

    module: str
    function: str


KINDS: Mapping[str, Kind] = {
    "http": Kind("channel_tools.publish.server.target", "open_server"),
    "https": Kind("channel_tools.publish.server.target", "open_server"),
    "anaconda": Kind("channel_tools.publish.third_party", "open_third_party"),
    "artifactory+http": Kind("channel_tools.publish.third_party", "open_third_party"),
    "artifactory+https": Kind("channel_tools.publish.third_party", "open_third_party"),
    "cloudsmith": Kind("channel_tools.publish.third_party", "open_third_party"),
    "prefix": Kind("channel_tools.publish.third_party", "open_third_party"),
    "quetz+http": Kind("channel_tools.publish.third_party", "open_third_party"),
    "quetz+https": Kind("channel_tools.publish.third_party", "open_third_party"),
}
"""By the scheme of an address; what has none, and ``file``, is a folder."""


class Target(Protocol):
    """A place that packages are published to: a folder or a server."""

    @property
    def address(self) -> str:
        """The address of label ``main`` for clients, without credentials."""
        ...

    def foundation(self) -> Foundation | None:
        """The foundation that packages published there count as built on; None if the target does not say."""
        ...

    def plan(self, packages: PackageSet, *, label: str) -> PublishPlan:
        """Compare with the target, changing nothing. Raises ChannelError (a name has other bytes), NetworkError."""
        ...

    def publish(self, plan: PublishPlan, *, progress: Progress) -> PublishReport:
        """Carry out the plan so that readers see the whole set or nothing of it; running it again completes it.

        Raises NetworkError, ChannelError, IntegrityError, DiskFullError; what was sent before is kept for the next run.
        """
        ...

    def promote(self, keys: tuple[str, ...], *, source: str, label: str, progress: Progress) -> PublishReport:
        """Add the packages ``keys`` (``subdir/file name``) of label ``source`` to ``label``, with the same bytes.

        Raises UsageError if the target has no labels, ChannelError for names that ``source`` does not list.
        """
        ...


@runtime_checkable
class MaintainedTarget(Target, Protocol):
    """A target whose published packages can be maintained. Each change is atomic for readers and safe to repeat.

    All raise UsageError for a label that does not exist.
    """

    def labels(self) -> list[str]:
        """The existing labels, main first; none before the first publishing."""
        ...

    def packages(self, label: str) -> tuple[LabelPackage, ...]:
        """All packages of the label, including hidden ones, sorted."""
        ...

    def yank(self, keys: tuple[str, ...], *, label: str, reason: str | None) -> None:
        """Hide packages from new solves; their files stay for lock files. With ``reason`` None, undo that."""
        ...

    def hotfix(self, patches: Mapping[str, Patch], *, label: str, replace: bool) -> None:
        """Patch the records of subdirs, in addition to earlier patches or (``replace``) instead of them."""
        ...

    def retain(self, rule: Retention, *, label: str, dry_run: bool) -> RetentionPlan:
        """Hide packages as ``rule`` says and delete those hidden long enough; with ``dry_run`` only return the plan."""
        ...


def open_target(
    address: str, *, environ: Mapping[str, str], changed: Callable[[ChannelWriter], object] | None = None
) -> Target:
    """The target for ``address``: a path, or a URL whose scheme says what kind of target it is.

    ``changed`` is told of each change of a folder's channel, while its lock is held; servers have their own listeners.
    Credentials are looked up in ``environ``; nothing is contacted yet. Raises UsageError for an unknown scheme, and for
    a bucket.
    """
    scheme = scheme_of(address)
    if scheme == "" and is_misspelled(address):
        shown = without_credentials(address)
        raise UsageError(f"{shown!r}: not an address", hint="write https://HOST/CHANNEL or a folder")
    if scheme in {"", "file"}:
        from channel_tools.publish.folder import open_folder  # noqa: PLC0415 - as the other kinds, on demand

        folder = open_folder(address)
        return folder if changed is None else dataclasses.replace(folder, changed=changed)
    if scheme == BUCKET:
        shown = without_credentials(address)
        message = f"{shown}: a bucket is a copy of a channel's folder; nothing is changed in the copy"
        hint = f"make the change in the folder (--at FOLDER), then: channel_tools publish --to {shown} --from FOLDER"
        raise UsageError(message, hint=hint)
    if scheme not in KINDS:
        known = ", ".join(f"{name}://" for name in sorted((*KINDS, BUCKET, "file")))
        message = f"{without_credentials(address)}: publishing to {scheme}:// addresses is not supported"
        raise UsageError(message, hint=f"give a folder, or an address that starts with one of: {known}")
    kind = KINDS[scheme]
    return cast("Opener", getattr(importlib.import_module(kind.module), kind.function))(address, environ)


def maintained(target: Target) -> MaintainedTarget:
    """The target as a MaintainedTarget. Raises UsageError for one that only accepts uploads."""
    if isinstance(target, MaintainedTarget):
        return target
    message = f"{target.address}: channel_tools cannot yank, patch or retain packages there"
    raise UsageError(message, hint="use the server's own tools for that")
