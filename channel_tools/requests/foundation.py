# SPDX-License-Identifier: BSD-3-Clause
"""What the commands of ``foundation`` are asked for, and ``build`` for the foundation that it builds on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.system.settings import available_cores

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.requests.plan import FoundationKind


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRequest:
    """How the registry foundation is made: at most ``jobs`` packages at once (None: as many as cores).

    Versions that an earlier run recorded are used again; ``update`` uses the newest available; ``locked`` (a record)
    uses exactly what it names. ``needed`` are the names whose rows are made, with what they lead to, beside those of
    earlier runs; None makes all rows that are not optional, also in later runs. ``asked`` are optional rows and
    combinations to make as well; those of earlier runs stay. ``pythons`` are packages made by recipes, by minor
    version, for combinations with another Python than the table's; if one is missing there, that of an earlier run is
    kept. ``offline`` uses only what was recorded and downloaded before, and raises NetworkError for anything else, also
    with ``dry_run``, which writes nothing.
    """

    jobs: int | None = None
    update: bool = False
    locked: Path | None = None
    needed: frozenset[str] | None = None
    asked: frozenset[str] = frozenset()
    pythons: Mapping[str, Path] = field(default_factory=dict)
    offline: bool = False
    dry_run: bool = False

    @property
    def packages_at_once(self) -> int:
        """How many packages are made at once."""
        return self.jobs or available_cores()


@dataclass(frozen=True, kw_only=True, slots=True)
class LockRequest:
    """What to do with the foundation lock: fill it in, or with ``update`` move it (``names`` alone, if any).

    ``conda-forge-pinning`` among the names, or a MatchSpec of it, moves the pinning that stacks.yaml names by version.
    ``foundation``, ``address`` and ``further`` are those of PlanRequest, but need not be the local channel's;
    ``dry_run`` writes nothing.
    """

    update: bool = False
    names: tuple[str, ...] = ()
    foundation: FoundationKind | None = None
    address: str | None = None
    further: tuple[str, ...] = ()
    dry_run: bool = False
