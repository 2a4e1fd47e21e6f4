# SPDX-License-Identifier: BSD-3-Clause
"""The foundation lock of a tree: made, filled in and moved, and what moving it would build again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.plan import PublishedPackage, current_platform, judge_again
from channel_tools.plan.lock import FoundationLock, lock_path, read_lock, write_lock
from channel_tools.plan.locking import LockedFoundation
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.workflow.plan import PlanRequest, expand_request, plan_expansion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from channel_tools.matrix import FoundationKind
    from channel_tools.plan import PlannedPackage
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import Expansion


@dataclass(frozen=True, kw_only=True, slots=True)
class LockRequest:
    """What to do with the lock: fill it in, or with ``update`` move it, for ``names`` alone unless that is empty.

    ``foundation`` and ``address`` are those of PlanRequest; ``dry_run`` writes nothing.
    """

    update: bool
    names: tuple[str, ...] = ()
    foundation: FoundationKind | None = None
    address: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedName:
    """The versions and builds of a package name before and after."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockChange:
    """A change of the lock in ``path``: what moves, and the packages that it makes anew, each with its reasons."""

    path: Path
    before: FoundationLock
    after: FoundationLock
    rebuilt: tuple[PlannedPackage, ...]

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

    Raises UsageError for the registry foundation, which has no lock, and for a name that is not locked, and the errors
    of planning. Nothing is written with ``dry_run``, or after an error.
    """
    expansion = _expand(settings, request)
    kind, platform, root = expansion.foundation.kind, current_platform(), settings.tree.root
    before = read_lock(root, kind, platform)
    _check_names(request.names, before, lock_path(root, kind, platform))
    moved = None if request.update and not request.names else request.names
    # an update is compared with what the tree would build now
    now = plan_expansion(settings, expansion) if request.update else None
    locked = LockedFoundation(before, moved=moved)
    plan = plan_expansion(settings, expansion, locked=locked)
    after = locked.result(only_used=True)
    rebuilt: tuple[PlannedPackage, ...] = ()
    if now is not None:
        known = {
            one.file_name: PublishedPackage(
                name=one.name, file_name=one.file_name, digest=one.digest, inputs=one.inputs
            )
            for one in now.packages
        }
        rebuilt = judge_again(plan, known).to_build
    path = lock_path(root, kind, platform)
    if not request.dry_run and after != before:
        write_lock(root, kind, platform, after)
    return LockChange(path=path, before=before, after=after, rebuilt=rebuilt)


def _expand(settings: Settings, request: LockRequest) -> Expansion:
    kind = request.foundation
    if kind is None and not settings.channel.exists():
        kind = "conda-forge"
    plan = PlanRequest(every_stack=True, all_variants=True, foundation=kind, address=request.address)
    expansion = expand_request(settings, plan)
    if expansion.foundation.kind == "registry":
        message = (
            "the registry foundation has no lock: it is made from a table in channel_tools, and moves only when told"
        )
        raise UsageError(message, hint="update it with: channel_tools foundation build --update; or give --foundation")
    return expansion


def _check_names(names: tuple[str, ...], lock: FoundationLock, path: Path) -> None:
    known = {str(record["name"]) for record in lock.records.values()}
    for name in names:
        if name not in known:
            hint = nearest_names_hint(name, known, what="locked package")
            raise UsageError(f"{path}: has no package {name!r}", hint=hint)


def _by_name(lock: FoundationLock) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name, text in sorted(_shown(lock)):
        found.setdefault(name, []).append(text)
    return {name: tuple(texts) for name, texts in found.items()}


def _shown(lock: FoundationLock) -> Iterator[tuple[str, str]]:
    for record in lock.records.values():
        yield str(record["name"]), f"{record['version']} {record['build']}"
