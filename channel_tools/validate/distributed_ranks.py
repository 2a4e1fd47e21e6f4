# SPDX-License-Identifier: BSD-3-Clause
"""What each rank of the validation of a process-group backend writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedCase:
    """One case as one rank saw it."""

    name: str
    seconds: float
    max_error: float
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedPath:
    """One way (the backend, plain gloo) of a measured size on one rank; seconds per measured call."""

    seconds: tuple[float, ...]
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedPaths:
    """Both ways."""

    default: DistributedPath
    plain: DistributedPath


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedSpeed:
    """One measured size on one rank."""

    dtype: str
    numel: int
    paths: DistributedPaths


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedResult:
    """Everything that one rank wrote.

    ``backend`` is the default group's name, ``carrier`` the class of the object that works for it and
    ``carrier_name`` what that object calls itself; ``events`` are the profiler's, by name, of the cases.
    """

    rank: int
    world_size: int
    python: str
    torch: str
    backend: str
    carrier: str
    carrier_name: str
    events: dict[str, int]
    libraries: tuple[str, ...]
    cases: tuple[DistributedCase, ...]
    speeds: tuple[DistributedSpeed, ...]
