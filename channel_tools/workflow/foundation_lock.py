# SPDX-License-Identifier: BSD-3-Clause
"""The foundation lock of a tree: made, filled in and moved, and what moving it would build again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, open_channel
from channel_tools.conda.platforms import current_platform
from channel_tools.plan import PublishedPackage, judge_again
from channel_tools.plan.further_channels import further_channels, further_names
from channel_tools.plan.lock import FoundationLock, lock_path, read_lock, write_lock
from channel_tools.plan.locking import LockedFoundation
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.workflow.plan import expand_request, plan_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.plan.model import UnsatisfiablePackage
    from channel_tools.requests.foundation import LockRequest
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import Expansion


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedName:
    """The versions and builds of a package name before and after."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockChange:
    """A change of the lock in ``path``: what moves, and the packages that it makes anew, each with its reasons.

    ``unserved`` are variants that the foundation can serve before it, and not after it.
    """

    path: Path
    before: FoundationLock
    after: FoundationLock
    rebuilt: tuple[PlannedPackage, ...] = ()
    unserved: tuple[UnsatisfiablePackage, ...] = ()

    @property
    def moved(self) -> tuple[MovedName, ...]:
        """The names whose locked packages differ, in alphabetical order."""
        old, new = _by_name(self.before), _by_name(self.after)
        return tuple(
            MovedName(name=name, before=old.get(name, ()), after=new.get(name, ()))
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
        )


def change_lock(settings: Settings, request: LockRequest) -> LockChange:
    """Fill in or move the lock for every stack and variant of the tree; what none of them needs is left out.

    Raises UsageError for the registry foundation without further channels, which has no lock, and for a name that is
    not locked, and the errors of planning. Nothing is written with ``dry_run``, or after an error.
    """
    foundation = _foundation(settings, request)
    kind, platform, root = foundation.kind, current_platform(), settings.tree.root
    path, before = lock_path(root, kind, platform), read_lock(root, kind, platform)
    _check_names(request.names, before, path)
    moved = None if request.update and not request.names else request.names
    locked = LockedFoundation(before, moved=moved, further=further_names(foundation))
    plan = plan_expansion(settings, _expand(settings, foundation), locked=locked)
    change = LockChange(path=path, before=before, after=locked.result(only_used=True))
    if request.update:
        now = plan_expansion(settings, _expand(settings, foundation))
        known = {
            package.file_name: PublishedPackage(
                name=package.name, file_name=package.file_name, digest=package.digest, inputs=package.inputs
            )
            for package in now.packages
        }
        change = replace(change, rebuilt=judge_again(plan, known).to_build, unserved=_newly_unserved(plan, now))
    if not request.dry_run and change.after != before:
        write_lock(root, kind, platform, change.after)
    return change


def _newly_unserved(plan: Plan, now: Plan) -> tuple[UnsatisfiablePackage, ...]:
    """The variants that only ``now`` could be served."""

    def identity(rendered: RenderedPackage) -> tuple[object, ...]:
        return rendered.stack, rendered.name, frozenset(rendered.variant.items())

    known = {identity(package.rendered) for package in now.unsatisfiable}
    return tuple(package for package in plan.unsatisfiable if identity(package.rendered) not in known)


def _foundation(settings: Settings, request: LockRequest) -> Foundation:
    """The foundation of the request, else the local channel's, else conda-forge.

    It may be another than the local channel's, since nothing is written there.
    """
    kind = request.foundation
    recorded = open_channel(settings.channel).foundation if settings.channel.exists() else None
    if kind is None and (request.address is not None or recorded is None):
        kind = "conda-forge"
    foundation = Foundation.named(kind, request.address) or recorded or Foundation(kind="conda-forge")
    if recorded is not None and recorded == foundation:
        foundation = foundation.with_further(recorded.further)
    further = further_channels(request.further, own=settings.channel, foundation=foundation)
    foundation = foundation.with_further(further)
    if not foundation.is_updated_by_others:
        message = (
            "the registry foundation has no lock: it is made from a table in channel_tools, and moves only when told"
        )
        hint = (
            "update it with: channel_tools foundation build --update; or give --foundation conda-forge, or the further "
            "channels that builds take packages from with -c"
        )
        raise UsageError(message, hint=hint)
    return foundation


def _expand(settings: Settings, foundation: Foundation) -> Expansion:
    return expand_request(settings, PlanRequest(every_stack=True, all_variants=True), foundation=foundation)


def _check_names(names: tuple[str, ...], lock: FoundationLock, path: Path) -> None:
    known = {str(record["name"]) for record in lock.records.values()}
    for name in names:
        if name not in known:
            hint = nearest_names_hint(name, known, noun="locked package")
            raise UsageError(f"{path}: has no package {name!r}", hint=hint)


def _by_name(lock: FoundationLock) -> dict[str, tuple[str, ...]]:
    builds: dict[str, list[str]] = {}
    for name, text in sorted(_shown(lock)):
        builds.setdefault(name, []).append(text)
    return {name: tuple(texts) for name, texts in builds.items()}


def _shown(lock: FoundationLock) -> Iterator[tuple[str, str]]:
    for record in lock.records.values():
        yield str(record["name"]), f"{record['version']} {record['build']}"
