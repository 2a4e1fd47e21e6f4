# SPDX-License-Identifier: BSD-3-Clause
"""What each rank writes, whatever the method; a method that counts adds its counters to cases and paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCase:
    """One case as one rank saw it."""

    name: str
    seconds: float
    max_error: float
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPath:
    """One way (the stack's, plain gloo) of a measured size on one rank; seconds per measured call."""

    seconds: tuple[float, ...]
    mismatches: int


P_co = TypeVar("P_co", bound=RankPath, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPaths(Generic[P_co]):
    """Both ways."""

    default: P_co
    plain: P_co


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpeed(Generic[P_co]):
    """One measured size on one rank."""

    dtype: str
    numel: int
    paths: RankPaths[P_co]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What every rank says of itself."""

    rank: int
    world_size: int
    python: str
    torch: str
