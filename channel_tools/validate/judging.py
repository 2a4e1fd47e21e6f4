# SPDX-License-Identifier: BSD-3-Clause
"""Functions that the checks of all methods share: pure, from results to checks and figures."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.validate.model import BandwidthRow, CaseResult, Check, Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.validate.cases import Case, Speed
    from channel_tools.validate.ranks import RankCase, RankFacts, RankPath, RankSpeed

_MB = 1e6


def judge_case(
    case: Case, ranks: Sequence[RankCase], *, route: str, allowed: float, problems: Sequence[str] = ()
) -> CaseResult:
    """One case from the ranks' results; ``problems`` are those that the values do not show."""
    faults: list[str] = []
    for rank, result in enumerate(ranks):
        if result.mismatches:
            faults.append(f"rank {rank}: {result.mismatches} wrong values")
        if result.max_error > allowed:
            faults.append(f"rank {rank}: error {result.max_error:.2g} above {allowed:g}")
    return CaseResult(
        name=case.name,
        dtype=case.dtype,
        op=case.op,
        numel=case.numel,
        calls=case.calls,
        route=route,
        reason=case.reason,
        error_measure=case.measure,
        max_error=max(result.max_error for result in ranks),
        max_error_allowed=allowed,
        mismatches=sum(result.mismatches for result in ranks),
        seconds=max(result.seconds for result in ranks),
        problems=(*faults, *problems),
    )


def exact_check(name: str, cases: Sequence[CaseResult]) -> Check:
    """The check that no case has a wrong value."""
    wrong = sum(case.mismatches for case in cases)
    return Check(
        name=name,
        passed=wrong == 0,
        found=f"{counted(wrong, 'wrong value')} in {counted(len(cases), 'case')}",
        expected="0 wrong values",
    )


def float_check(name: str, cases: Sequence[CaseResult], allowed: float) -> Check:
    """The check that no case has a wrong value or a larger error than ``allowed``."""
    worst = max((case.max_error for case in cases), default=0.0)
    wrong = sum(case.mismatches for case in cases)
    return Check(
        name=name,
        passed=wrong == 0 and worst <= allowed,
        found=f"{worst:.2g}, {counted(wrong, 'wrong value')} in {counted(len(cases), 'case')}",
        expected=f"at most {allowed:g}, 0 wrong values",
    )


def cases_check(name: str, cases: Sequence[CaseResult]) -> Check:
    """The check that no case has a problem of any kind."""
    faulty = [case.name for case in cases if case.problems]
    return Check(
        name=name,
        passed=not faulty,
        found=f"{len(cases) - len(faulty)} of {len(cases)}" + (f"; not {faulty[0]}" if faulty else ""),
        expected=f"{len(cases)} of {len(cases)}",
    )


def problems_check(name: str, problems: Sequence[str], *, expected: str) -> Check:
    """The check that there are no problems; the first three are shown."""
    return Check(name=name, passed=not problems, found="; ".join(problems[:3]) or expected, expected=expected)


def hosts_checks(results: Sequence[RankFacts], hosts: Sequence[str]) -> tuple[Check, ...]:
    """The check that each host of a scheduler's job ran its share of the ranks; none if there are no ``hosts``."""
    if not hosts:
        return ()
    counts = Counter(result.host for result in results)
    each = len(results) // len(hosts)
    return (
        Check(
            name="every host ran its share of the ranks",
            passed=sorted(counts.values()) == [each] * len(hosts),
            found=", ".join(f"{host}: {count}" for host, count in sorted(counts.items())),
            expected=f"{counted(each, 'rank')} on each of {counted(len(hosts), 'host')}",
        ),
    )


def bandwidth_row(speed: Speed, ranks: Sequence[RankSpeed[RankPath]]) -> BandwidthRow:
    """The figures of one size from the ranks' measurements."""
    return BandwidthRow(
        dtype=speed.dtype,
        numel=speed.numel,
        size_bytes=speed.size_bytes,
        repetitions=speed.repetitions,
        transport=_bandwidth(speed, [rank.paths.default for rank in ranks]),
        baseline=_bandwidth(speed, [rank.paths.plain for rank in ranks]),
    )


def _bandwidth(speed: Speed, ranks: Sequence[RankPath]) -> Spread:
    return spread_of([speed.size_bytes / _MB / seconds for seconds in slowest_calls(ranks)])


def slowest_calls(ranks: Sequence[RankPath]) -> list[float]:
    """The seconds of each call on the slowest rank."""
    return [max(call) for call in zip(*(rank.seconds for rank in ranks), strict=True)]


def spread_of(figures: Sequence[float]) -> Spread:
    """Median and quartiles of at least two figures, by linear interpolation between them."""
    lower, median, upper = statistics.quantiles(figures, n=4, method="inclusive")
    return Spread(lower=lower, median=median, upper=upper)


def numbers_in_words(values: Mapping[str, int]) -> str:
    """``float32 3, int32 4``, or ``none``."""
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items())) or "none"
