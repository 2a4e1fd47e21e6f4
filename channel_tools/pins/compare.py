# SPDX-License-Identifier: BSD-3-Clause
"""What differs between two locks, package by package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from channel_tools.pins.model import Lock, LockedPackage

ChangeKind = Literal["added", "removed", "changed"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class PinChange:
    """One package of one platform; ``before`` and ``after`` are ``version build``, None where it is in no lock.

    A package that has the same version and build on both sides has other bytes.
    """

    platform: str
    name: str
    kind: ChangeKind
    before: str | None
    after: str | None


def compare_locks(before: Lock, after: Lock) -> tuple[PinChange, ...]:
    """Every package that came, went or changed, by platform and name; its address does not count."""
    earlier, later = _packages(before), _packages(after)
    changes = []
    for key in sorted({*earlier, *later}):
        old, new = earlier.get(key), later.get(key)
        if old is not None and new is not None and (old.sha256, old.file_name) == (new.sha256, new.file_name):
            continue
        kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
        changes.append(PinChange(platform=key[0], name=key[1], kind=kind, before=_said(old), after=_said(new)))
    return tuple(changes)


def _packages(lock: Lock) -> dict[tuple[str, str], LockedPackage]:
    return {(platform.platform, package.name): package for platform in lock.platforms for package in platform.packages}


def _said(package: LockedPackage | None) -> str | None:
    return None if package is None else f"{package.version} {package.build}"
