# SPDX-License-Identifier: BSD-3-Clause
"""The foundation lock of a tree: made, filled in and moved, and what moving it would build again.

conda-forge's pinning, if the tree names it by version, is fetched and moved with it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from channel_tools.channel import Foundation, open_channel
from channel_tools.conda.platforms import current_platform
from channel_tools.conda.specs import specs_on
from channel_tools.matrix.pinning_lock import PINNING_PACKAGE
from channel_tools.plan import PublishedPackage, judge_again
from channel_tools.plan.further_channels import further_channels, further_names
from channel_tools.plan.lock import FoundationLock, lock_path, read_lock, write_lock
from channel_tools.plan.locking import LockedFoundation
from channel_tools.plan.pinning import change_pinning, write_pinning
from channel_tools.requests.plan import PlanRequest
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.system.progress import SilentProgress
from channel_tools.workflow.plan import chosen_foundation, expand_request, open_index, plan_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage, VariantScalar
    from channel_tools.matrix.pinning_lock import PinnedPackage
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.plan.model import UnsatisfiablePackage
    from channel_tools.plan.pinning import PinningChange
    from channel_tools.requests.foundation import LockRequest
    from channel_tools.system.progress import Progress
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
    pinning: MovedName | None = None
    """The package with conda-forge's pinning, if that is fetched or moved."""

    @property
    def moved(self) -> tuple[MovedName, ...]:
        """The pinning, then the names whose locked packages differ, in alphabetical order."""
        old, new = _by_name(self.before), _by_name(self.after)
        pinning = () if self.pinning is None else (self.pinning,)
        return pinning + tuple(
            MovedName(name=name, before=old.get(name, ()), after=new.get(name, ()))
            for name in sorted(old.keys() | new.keys())
            if old.get(name) != new.get(name)
        )


def change_lock(settings: Settings, request: LockRequest, *, progress: Progress | None = None) -> LockChange:
    """Fill in or move the lock for every stack and variant of the tree; what none of them needs is left out.

    A pinning that stacks.yaml names by version is fetched into the tree if it is not there as recorded, and moved if
    the request names it. ``progress`` is told of the download.

    Raises UsageError for the registry foundation without further channels, which has no lock, and for a name that is
    not locked, and the errors of planning and of change_pinning. Nothing is written with ``dry_run``, or after an
    error.
    """
    foundation = _foundation(settings, request)
    kind, platform, root = foundation.kind, current_platform(), settings.tree.root
    path, before = lock_path(root, kind, platform), read_lock(root, kind, platform)
    asked = specs_on({PINNING_PACKAGE}, request.names)
    names = tuple(name for name in request.names if name not in asked)
    _check_names(names, before, path)
    if len(asked) > 1:
        raise UsageError(f"{', '.join(asked)}: a tree has one pinning", hint=f"give {PINNING_PACKAGE} once")
    pinning = asyncio.run(
        change_pinning(
            settings,
            foundation,
            asked=asked[-1] if asked else None,
            open_index=partial(open_index, settings, foundation),
            progress=progress or SilentProgress(),
        )
    )
    expansion = _expand(settings, foundation, None if pinning is None else pinning.after)
    moved = None if request.update and not request.names else names
    locked = LockedFoundation(before, moved=moved, further=further_names(foundation))
    plan = plan_expansion(settings, expansion, locked=locked)
    change = LockChange(path=path, before=before, after=locked.result(only_used=True), pinning=_moved_pinning(pinning))
    if request.update:
        change = _compared(change, plan, plan_expansion(settings, _expand(settings, foundation)))
    if not request.dry_run:
        if change.after != before:
            write_lock(root, kind, platform, change.after)
        if pinning is not None and pinning.is_new:
            write_pinning(settings, pinning)
    return change


def _compared(change: LockChange, plan: Plan, now: Plan) -> LockChange:
    """The change with what its plan would build, compared with what the tree, as it is ``now``, would build."""
    known = {
        package.file_name: PublishedPackage(
            name=package.name, file_name=package.file_name, digest=package.digest, inputs=package.inputs
        )
        for package in now.packages
    }
    return replace(change, rebuilt=judge_again(plan, known).to_build, unserved=_newly_unserved(plan, now))


def _newly_unserved(plan: Plan, now: Plan) -> tuple[UnsatisfiablePackage, ...]:
    """The variants that only ``now`` could be served; keys of which a moved pinning has other values do not count."""
    before, after = _values_of(now), _values_of(plan)

    def identity(rendered: RenderedPackage) -> tuple[object, ...]:
        keys = ((rendered.stack, rendered.name, key) for key in rendered.variant)
        same = {key[2] for key in keys if before.get(key) == after.get(key)}
        return rendered.stack, rendered.name, frozenset((key, rendered.variant[key]) for key in same)

    known = {identity(package.rendered) for package in now.unsatisfiable}
    return tuple(package for package in plan.unsatisfiable if identity(package.rendered) not in known)


def _values_of(plan: Plan) -> dict[tuple[str, str, str], set[VariantScalar]]:
    """The values of each variant key of each package in each stack."""
    values: dict[tuple[str, str, str], set[VariantScalar]] = {}
    rendered = [*(package.rendered for package in plan.packages), *(package.rendered for package in plan.unsatisfiable)]
    for package in rendered:
        for key, value in package.variant.items():
            values.setdefault((package.stack, package.name, key), set()).add(value)
    return values


def _moved_pinning(change: PinningChange | None) -> MovedName | None:
    if change is None or not change.is_new:
        return None
    before, after = (
        (f"{pinning.version} {pinning.build}",) if pinning else () for pinning in (change.before, change.after)
    )
    return MovedName(name=PINNING_PACKAGE, before=before, after=after)


def _foundation(settings: Settings, request: LockRequest) -> Foundation:
    """The foundation of the request, else the local channel's, else conda-forge.

    It may be another than the local channel's, since nothing is written there.
    """
    kind = request.foundation
    recorded = open_channel(settings.channel).foundation if settings.channel.exists() else None
    if kind is None and (request.address is not None or recorded is None):
        kind = "conda-forge"
    foundation = chosen_foundation(kind, request.address) or recorded or Foundation(kind="conda-forge")
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


def _expand(settings: Settings, foundation: Foundation, pinned: PinnedPackage | None = None) -> Expansion:
    request = PlanRequest(every_stack=True, all_variants=True)
    return expand_request(settings, request, foundation=foundation, pinned=pinned)


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
