# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins at the boundary to other programs: scripts in an environment, and what ranks and switch would have said."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.validate.cases import Case, Speed
from channel_tools.validate.ranks import RankPaths, RankSpeed
from channel_tools.validate.switchml.method import (
    CountedCase,
    CountedPath,
    DelegatedTotals,
    DroppedPackets,
    PluginLibrary,
    PluginStats,
    RankCounts,
    RankResult,
    SwitchmlOptions,
    SwitchmlPlan,
    SwitchStats,
    expected_slots,
)

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = "lib/libswitchml.so.1"


def write_program(path: Path, code: str) -> Path:
    """An executable Python script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\n{textwrap.dedent(code)}", encoding="utf-8")
    path.chmod(0o755)
    return path


def small_plan() -> SwitchmlPlan:
    """One case of every kind and one measured size."""
    return SwitchmlPlan(
        options=SwitchmlOptions(),
        cases=(
            Case(name="floats", dtype="float32", data="positive", numel=1000),
            Case(name="none", dtype="float32", data="positive", numel=0),
            Case(name="integers", dtype="int32", data="range", numel=257, calls=4, is_async=True),
            Case(name="doubles", dtype="float64", data="range", numel=10, reason="dtype"),
            Case(name="infinities", dtype="float32", data="nonfinite", numel=2000),
        ),
        speeds=(Speed(dtype="int32", numel=1 << 20, warmups=1, repetitions=3),),
    )


def perfect_results(plan: SwitchmlPlan, prefix: Path, *, ranks: int = 2) -> list[RankResult]:
    """What ranks write when everything is as planned."""
    return [_perfect_result(plan, prefix, rank, ranks) for rank in range(ranks)]


def perfect_stats(plan: SwitchmlPlan, *, ranks: int = 2) -> SwitchStats:
    """What the switch counts when everything is as planned."""
    slots = expected_slots(plan, ranks)
    return SwitchStats(
        sessions_opened=1,
        num_workers=ranks,
        packets_received=slots * ranks,
        packets_dropped=DroppedPackets(malformed=0, unknown_worker=0, bad_slot=0, stale=0, injected=0),
        slots_completed=slots,
        elements_aggregated=slots * plan.options.packet_numel,
        results_sent=slots * ranks,
    )


def counts(dtype: str, numel: int, calls: int, reason: str = "") -> RankCounts:
    if reason:
        return RankCounts(jobs={}, elements={}, fallbacks={reason: calls}, failed_jobs=0)
    elements = {dtype: numel * calls} if numel else {}
    return RankCounts(jobs={dtype: calls}, elements=elements, fallbacks={}, failed_jobs=0)


def _perfect_result(plan: SwitchmlPlan, prefix: Path, rank: int, ranks: int) -> RankResult:
    totals = {
        "float32": DelegatedTotals(jobs=0, elements=0, bytes=0),
        "int32": DelegatedTotals(jobs=0, elements=0, bytes=0),
    }
    for dtype, numel, calls in plan.delegated_jobs():
        elements = totals[dtype].elements + numel * calls
        totals[dtype] = replace(totals[dtype], jobs=totals[dtype].jobs + calls, elements=elements, bytes=4 * elements)
    fallbacks = {"dtype": 0, "group": sum(speed.calls for speed in plan.speeds), "reduce_op": 0}
    for case in plan.cases:
        if case.reason:
            fallbacks[case.reason] += case.calls
    return RankResult(
        rank=rank,
        world_size=ranks,
        host="node7",
        python="3.11.2",
        torch="2.13.0",
        cases=tuple(_perfect_case(case) for case in plan.cases),
        speeds=tuple(_perfect_speed(speed, rank) for speed in plan.speeds),
        stats=PluginStats(
            active=True,
            version="1.0.0",
            library=PluginLibrary(path=str(prefix / LIBRARY), version="1.0.0", transport="udp"),
            delegated=totals,
            fallbacks=fallbacks,
            failed_jobs=0,
        ),
    )


def _perfect_case(case: Case) -> CountedCase:
    error = 0.0 if case.measure == "exact" else 5e-8
    seen = counts(case.dtype, case.numel, case.calls, case.reason)
    return CountedCase(name=case.name, seconds=0.01, max_error=error, mismatches=0, counts=seen)


def _perfect_speed(speed: Speed, rank: int) -> RankSpeed[CountedPath]:
    def path(seconds: tuple[float, ...], reason: str) -> CountedPath:
        seen = counts(speed.dtype, speed.numel, speed.calls, reason)
        return CountedPath(seconds=seconds, counts=seen, mismatches=0)

    slow = 0.002 if rank else 0.001
    paths = RankPaths(default=path((slow, 0.001, 0.009), ""), plain=path((0.004, 0.004, 0.004), "group"))
    return RankSpeed(dtype=speed.dtype, numel=speed.numel, paths=paths)
