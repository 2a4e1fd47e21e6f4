# SPDX-License-Identifier: BSD-3-Clause
"""Checks a SwitchML run: pure, from the plan, the ranks' results and the switch's counters.

Three counts have to agree to the element: the plan's (eligible), the plugin's (delegated, on every rank) and the
switch's (added up). Any difference is a failed check, so nothing can fall back silently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.validate.cases import BASELINE, DTYPE_BYTES, Case, Speed
from channel_tools.validate.judging import (
    bandwidth_row,
    cases_check,
    exact_check,
    float_check,
    hosts_checks,
    judge_case,
    numbers_in_words,
    problems_check,
)
from channel_tools.validate.model import CaseResult, Check, MethodResult, RatesOnThisHost, TransportTotals
from channel_tools.validate.ranks import RankCase, RankFacts, RankPath, RankSpeed
from channel_tools.validate.switchml.plan import ELEMENT_BYTES, TRANSPORT, WIRE_DTYPES, SwitchmlPlan, expected_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from channel_tools.validate.switchml.switch import SwitchStats


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Increases of the plugin's counters: jobs and elements by dtype, fallbacks by reason, without zeros."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCase(RankCase):
    """A case of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPath(RankPath):
    """A measurement of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginLibrary:
    """The transport library that the plugin loaded."""

    path: str
    version: str
    transport: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShare:
    """Ranks of one host that reduce together; ``workers`` is 0 if no others take part: all is done in its memory."""

    workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegatedTotals:
    """Completed jobs of one dtype."""

    jobs: int
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStats:
    """The plugin's own report at the end of a rank."""

    active: bool
    version: str
    library: PluginLibrary | None
    delegated: dict[str, DelegatedTotals]
    fallbacks: dict[str, int]
    failed_jobs: int
    host: HostShare | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult(RankFacts):
    """Everything that one rank wrote."""

    cases: tuple[CountedCase, ...]
    speeds: tuple[RankSpeed[CountedPath], ...]
    stats: PluginStats


def judge(
    plan: SwitchmlPlan,
    results: Sequence[RankResult],
    switch: SwitchStats,
    *,
    prefix: Path,
    hosts: Sequence[str] = (),
    here: tuple[Sequence[Speed], Sequence[RankResult]] | None = None,
) -> MethodResult:
    """Compare all counts; the plugin's library must be in ``prefix``, ``hosts`` are those of a job.

    ``here`` is what was measured as users run it on this host, and what its ranks wrote.
    """
    cases = tuple(
        _judge_case(case, [result.cases[index] for result in results], allowed=plan.float_error_allowed)
        for index, case in enumerate(plan.cases)
    )
    speeds = [(speed, [result.speeds[index] for result in results]) for index, speed in enumerate(plan.speeds)]
    checks = (
        *hosts_checks(results, hosts),
        _library_check(results, prefix),
        *_result_checks(cases, allowed=plan.float_error_allowed),
        *_plugin_checks(plan, results, cases),
        *_speed_checks(speeds),
        *_switch_checks(plan, len(results), switch),
        *(() if here is None else (_here_check(*here),)),
    )
    return MethodResult(
        checks=checks,
        cases=cases,
        transports=_totals(plan, results, switch),
        bandwidth=tuple(bandwidth_row(speed, ranks) for speed, ranks in speeds),
        baseline=BASELINE,
        details=_details(results),
        remarks=_remarks(plan, hosts),
        on_this_host=None if here is None else _rates_here(*here),
    )


MEMORY = "this host's memory"


def _here_check(speeds: Sequence[Speed], results: Sequence[RankResult]) -> Check:
    """The check that ranks with nothing set are all carried by the same, with right results.

    That this is the host's memory is not asked: where a container refuses it, gloo is right.
    """
    carriers: dict[str, list[int]] = {MEMORY: [], BASELINE: [], "": []}
    wrong = 0
    for number, result in enumerate(results):
        carriers[_carrier(speeds, result)].append(number)
        wrong += result.stats.failed_jobs
        wrong += sum(path.mismatches for row in result.speeds for path in (row.paths.default, row.paths.plain))
    found = [
        f"{carrier or 'several'} on rank {', '.join(map(str, ranks))}" for carrier, ranks in carriers.items() if ranks
    ]
    is_one = len(found) == 1 and not carriers[""]
    return Check(
        name="ranks of this host with nothing set are right, and carried by one",
        passed=is_one and not wrong,
        found=(_carrier(speeds, results[0]) if is_one else "; ".join(found)) + (f", {wrong} wrong" if wrong else ""),
        expected=f"{MEMORY} or {BASELINE} on every rank, 0 wrong",
    )


def _carrier(speeds: Sequence[Speed], result: RankResult) -> str:
    """What carried all measured allreduces of a rank; "" if it was not one alone."""
    jobs = [row.paths.default.counts.jobs for row in result.speeds]
    if not any(jobs):
        return BASELINE
    all_delegated = jobs == [{speed.dtype: speed.calls} for speed in speeds]
    return MEMORY if all_delegated and result.stats.host is not None and result.stats.host.workers == 0 else ""


def _rates_here(speeds: Sequence[Speed], results: Sequence[RankResult]) -> RatesOnThisHost:
    rows = enumerate(speeds)
    return RatesOnThisHost(
        carrier=_carrier(speeds, results[0]) or MEMORY,
        bandwidth=tuple(bandwidth_row(speed, [result.speeds[number] for result in results]) for number, speed in rows),
    )


def _remarks(plan: SwitchmlPlan, hosts: Sequence[str]) -> tuple[str, ...]:
    if hosts:
        carrier = f"the ranks of a host ({plan.ranks_per_worker}) in its memory, the hosts through a software switch"
    else:
        carrier = "each rank through a software switch, not in this host's memory, as ranks of one host reduce"
    return (f"Measured: {carrier}, a process that shares the ranks' cores; a switch in hardware is faster.",)


def _judge_case(case: Case, ranks: Sequence[CountedCase], *, allowed: float) -> CaseResult:
    problems: list[str] = []
    for number, rank in enumerate(ranks):
        wrong_routes = _route_problems(
            rank.counts, dtype=case.dtype, numel=case.numel, calls=case.calls, reason=case.reason
        )
        problems += (f"rank {number}: {problem}" for problem in wrong_routes)
    return judge_case(
        case,
        ranks,
        route=TRANSPORT if case.is_delegated else BASELINE,
        allowed=0.0 if case.measure == "exact" else allowed,
        problems=problems,
    )


def _route_problems(counts: RankCounts, *, dtype: str, numel: int, calls: int, reason: str) -> Iterable[str]:
    """How the plugin's counters differ from what ``calls`` of this kind must add to them."""
    jobs = {} if reason else {WIRE_DTYPES[dtype]: calls}
    elements = {} if reason or not numel else {WIRE_DTYPES[dtype]: calls * numel}
    fallbacks = {reason: calls} if reason else {}
    for quantity, counted, expected in (
        ("delegated jobs", counts.jobs, jobs),
        ("delegated elements", counts.elements, elements),
        ("fallbacks", counts.fallbacks, fallbacks),
    ):
        if counted != expected:
            yield f"{quantity}: {numbers_in_words(counted)}, expected {numbers_in_words(expected)}"
    if counts.failed_jobs:
        yield f"{counts.failed_jobs} failed jobs"


def _library_check(results: Sequence[RankResult], prefix: Path) -> Check:
    libraries = [result.stats.library if result.stats.active else None for result in results]
    outside = {
        library.path
        for library in libraries
        if library and not Path(library.path).resolve().is_relative_to(prefix.resolve())
    }
    absent = [rank for rank, library in enumerate(libraries) if library is None]
    problem = "; ".join(
        [f"not active on rank {', '.join(map(str, absent))}"] * bool(absent)
        + [f"loaded {path}" for path in sorted(outside)]
    )
    return Check(
        name="the plugin is active, with the environment's own library",
        passed=not absent and not outside,
        found=problem or "on every rank",
        expected="on every rank",
    )


def _result_checks(cases: Sequence[CaseResult], *, allowed: float) -> Iterable[Check]:
    carried = [case for case in cases if case.route == TRANSPORT]
    yield exact_check("whole numbers are summed exactly", [case for case in carried if case.error_measure == "exact"])
    floats = [case for case in carried if case.error_measure != "exact"]
    within = f"{allowed:.2g}".replace("e-0", "e-")
    yield float_check(f"float32 sums are within {within} of float64's", floats, allowed)
    yield exact_check(f"what {BASELINE} carried is exact", [case for case in cases if case.route == BASELINE])


def _plugin_checks(plan: SwitchmlPlan, results: Sequence[RankResult], cases: Sequence[CaseResult]) -> Iterable[Check]:
    eligible: Counter[str] = Counter()
    for dtype, numel, calls in plan.delegated_jobs():
        eligible[dtype] += numel * calls
    delegated = [{dtype: row.elements for dtype, row in result.stats.delegated.items()} for result in results]
    yield _same_on_all("every eligible element was delegated", delegated, eligible)
    expected_fallbacks: Counter[str] = Counter()
    for case in plan.cases:
        if case.reason:
            expected_fallbacks[case.reason] += case.calls
    for speed in plan.speeds:
        expected_fallbacks["group"] += speed.calls
    fallbacks = [result.stats.fallbacks for result in results]
    yield _same_on_all("only what is not eligible fell back", fallbacks, expected_fallbacks)
    yield cases_check("each case was right and took its route on every rank", cases)
    failed = sum(result.stats.failed_jobs for result in results)
    yield Check(name="no job failed", passed=failed == 0, found=str(failed), expected="0")


def _same_on_all(name: str, per_rank: Sequence[Mapping[str, int]], expected: Mapping[str, int]) -> Check:
    cleaned = [{key: value for key, value in totals.items() if value} for totals in per_rank]
    wrong = [
        f"rank {rank}: {numbers_in_words(totals)}" for rank, totals in enumerate(cleaned) if totals != dict(expected)
    ]
    return Check(
        name=name,
        passed=not wrong,
        found="; ".join(wrong) or f"{numbers_in_words(expected)} on every rank",
        expected=f"{numbers_in_words(expected)} on every rank",
    )


def _speed_checks(speeds: Sequence[tuple[Speed, Sequence[RankSpeed[CountedPath]]]]) -> Iterable[Check]:
    yield _path_check(
        "measured calls went through SwitchML",
        [(speed, [rank.paths.default for rank in ranks]) for speed, ranks in speeds],
    )
    yield _path_check(
        f"measured {BASELINE} calls were not delegated",
        [(speed, [rank.paths.plain for rank in ranks]) for speed, ranks in speeds],
        reason="group",
    )


def _path_check(name: str, paths: Sequence[tuple[Speed, Sequence[CountedPath]]], *, reason: str = "") -> Check:
    problems: list[str] = []
    for speed, ranks in paths:
        for number, path in enumerate(ranks):
            wrong_routes = _route_problems(
                path.counts, dtype=speed.dtype, numel=speed.numel, calls=speed.calls, reason=reason
            )
            wrong = [f"{path.mismatches} wrong values"] if path.mismatches else []
            problems += (f"{speed.dtype} of {speed.numel}, rank {number}: {text}" for text in (*wrong_routes, *wrong))
    return problems_check(name, problems, expected="all, with right results")


def _switch_checks(plan: SwitchmlPlan, ranks: int, switch: SwitchStats) -> Iterable[Check]:
    slots = expected_slots(plan, ranks)
    dropped = switch.packets_dropped
    worker = "rank" if plan.ranks_per_worker == 1 else "host"
    for name, counted, expected in (
        ("the switch saw one session", switch.sessions_opened, 1),
        (f"the switch saw every {worker}", switch.num_workers, ranks // plan.ranks_per_worker),
        ("the switch completed every slot of every job", switch.slots_completed, slots),
        ("the switch added up every packet's elements", switch.elements_aggregated, slots * plan.options.packet_numel),
        ("the switch saw only well-formed packets", dropped.malformed + dropped.unknown_worker + dropped.bad_slot, 0),
    ):
        yield Check(name=name, passed=counted == expected, found=str(counted), expected=str(expected))


def _totals(plan: SwitchmlPlan, results: Sequence[RankResult], switch: SwitchStats) -> tuple[TransportTotals, ...]:
    first = results[0]
    delegated = first.stats.delegated.values()
    seen_by_gloo: list[tuple[Case | Speed, RankCounts]] = [
        *((case, result.counts) for case, result in zip(plan.cases, first.cases, strict=True)),
        *((speed, result.paths.plain.counts) for speed, result in zip(plan.speeds, first.speeds, strict=True)),
    ]
    gloo = [(allreduce, allreduce.numel * sum(counts.fallbacks.values())) for allreduce, counts in seen_by_gloo]
    return (
        TransportTotals(
            name=TRANSPORT,
            jobs=sum(row.jobs for row in delegated),
            elements=sum(row.elements for row in delegated),
            bytes=sum(row.bytes for row in delegated),
            counted_by="plugin",
        ),
        TransportTotals(
            name=TRANSPORT,
            jobs=None,
            elements=switch.elements_aggregated,
            bytes=switch.elements_aggregated * ELEMENT_BYTES,
            counted_by="switch",
        ),
        TransportTotals(
            name=BASELINE,
            jobs=sum(first.stats.fallbacks.values()),
            elements=sum(elements for _, elements in gloo),
            bytes=sum(elements * DTYPE_BYTES[allreduce.dtype] for allreduce, elements in gloo),
            counted_by="plugin",
        ),
    )


def _details(results: Sequence[RankResult]) -> dict[str, str]:
    first = results[0]
    details = {"python": first.python, "torch": first.torch, "torch_switchml": first.stats.version}
    if first.stats.library:
        details["libswitchml"] = f"{first.stats.library.transport} {first.stats.library.version}"
    return details
