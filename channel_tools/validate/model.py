# SPDX-License-Identifier: BSD-3-Clause
"""The values of a validation: what was checked, found and expected, as the report holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from channel_tools.environments import EnvironmentResult

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One promise of the stack: what was found beside what was expected."""

    name: str
    passed: bool
    found: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """One collective as all ranks saw it.

    ``route`` is what was to carry it: the stack's transport or the baseline. ``reason`` says why it was not the
    transport ("" where it was). ``max_error`` is the largest over the ranks, by ``error_measure``: ``exact`` (values
    compared bit by bit, ``mismatches`` counts), ``element``, ``unit`` or ``tensor`` (the reference that an error is
    relative to; docs/reference/validation-report.md).
    """

    name: str
    dtype: str
    op: str
    numel: int
    calls: int
    route: str
    reason: str
    error_measure: str
    max_error: float
    max_error_allowed: float
    mismatches: int
    seconds: float
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether results and route were right on every rank."""
        return not self.problems


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportTotals:
    """What one transport carried per rank, by one account; every rank carries the same elements.

    ``jobs`` is None where ``counted_by`` does not know them. The switch's elements include the padding of last packets
    and the packets that carry only exponents.
    """

    name: str
    jobs: int | None
    elements: int
    bytes: int
    counted_by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BandwidthRow:
    """MB (10^6 bytes) of tensor per second and rank: the median call, each timed on the slowest rank."""

    dtype: str
    numel: int
    size_bytes: int
    repetitions: int
    transport_mb_s: float
    baseline_mb_s: float

    @property
    def ratio(self) -> float:
        """Transport over baseline."""
        return self.transport_mb_s / self.baseline_mb_s


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodResult:
    """What a validation method found out."""

    checks: tuple[Check, ...]
    cases: tuple[CaseResult, ...]
    transports: tuple[TransportTotals, ...]
    bandwidth: tuple[BandwidthRow, ...]
    baseline: str
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """The machine, as far as figures depend on it."""

    system: str
    machine: str
    processor: str
    cores: int
    memory_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationReport:
    """Everything that a validation of one stack found; ``started`` is UTC in ISO 8601."""

    stack: str
    method: str
    ranks: int
    started: str
    seconds: float
    tool_version: str
    host: HostFacts
    environment: EnvironmentResult
    result: MethodResult

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.result.checks)

    @property
    def failed_checks(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.result.checks if not check.passed)
