# SPDX-License-Identifier: BSD-3-Clause
"""Everything as planned passes; every single thing that is not fails the check that is named after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.validate.cases import Speed
from channel_tools.validate.model import MethodResult
from channel_tools.validate.switchml.checks import MEMORY, DelegatedTotals, HostShare, RankResult, judge
from channel_tools.validate.switchml.switch import SwitchStats
from tests.unit.validate.fakes import counts, perfect_results, perfect_stats, small_plan

PREFIX = Path("/opt/env")
Spoil = Callable[[RankResult], RankResult]


def judged(spoil: Spoil = lambda result: result, *, stats: SwitchStats | None = None) -> MethodResult:
    """The judgement on a run whose second rank was spoilt."""
    plan = small_plan()
    first, second = perfect_results(plan, PREFIX)
    return judge(plan, [first, spoil(second)], stats or perfect_stats(plan), prefix=PREFIX)


def failed(result: MethodResult) -> list[str]:
    return [check.name for check in result.checks if not check.passed]


def case_changed(index: int, **changes: object) -> Spoil:
    def spoil(result: RankResult) -> RankResult:
        cases = list(result.cases)
        cases[index] = replace(cases[index], **changes)  # type: ignore[arg-type]
        return replace(result, cases=tuple(cases))

    return spoil


def stats_changed(**changes: object) -> Spoil:
    return lambda result: replace(result, stats=replace(result.stats, **changes))  # type: ignore[arg-type]


def path_changed(name: str, **changes: object) -> Spoil:
    def spoil(result: RankResult) -> RankResult:
        speed = result.speeds[0]
        path = replace(getattr(speed.paths, name), **changes)
        return replace(result, speeds=(replace(speed, paths=replace(speed.paths, **{name: path})),))

    return spoil


def test_a_run_as_planned_passes() -> None:
    result = judged()
    assert failed(result) == []
    assert all(case.passed for case in result.cases)
    assert result.details["libswitchml"] == "udp 1.0.0"


ROUTES = "each case was right and took its route on every rank"


@pytest.mark.parametrize(
    ("spoil", "names"),
    [
        pytest.param(
            case_changed(2, mismatches=1), ["whole numbers are summed exactly", ROUTES], id="one-wrong-integer"
        ),
        pytest.param(
            case_changed(0, max_error=1.1e-6),
            ["float32 sums are within 1e-6 of float64's", ROUTES],
            id="a-float-beyond-the-bound",
        ),
        pytest.param(
            case_changed(0, mismatches=1),
            ["float32 sums are within 1e-6 of float64's", ROUTES],
            id="a-float-that-is-no-number",
        ),
        pytest.param(case_changed(3, mismatches=1), ["what gloo carried is exact", ROUTES], id="a-wrong-double"),
        pytest.param(
            case_changed(0, counts=counts("float32", 1000, 1, "dtype")), [ROUTES], id="a-silent-fallback-in-a-case"
        ),
        pytest.param(case_changed(1, counts=counts("float32", 0, 0)), [ROUTES], id="an-empty-job-left-out"),
        pytest.param(case_changed(3, counts=counts("float64", 10, 1)), [ROUTES], id="delegated-what-must-not-be"),
        pytest.param(
            case_changed(3, counts=counts("float64", 10, 1, "group")), [ROUTES], id="fell-back-for-another-reason"
        ),
        pytest.param(
            stats_changed(delegated={"float32": DelegatedTotals(jobs=2, elements=999, bytes=3996)}),
            ["every eligible element was delegated"],
            id="elements-missing-from-the-plugins-total",
        ),
        pytest.param(
            stats_changed(fallbacks={"dtype": 1, "group": 4, "device": 1}),
            ["only what is not eligible fell back"],
            id="an-unplanned-fallback",
        ),
        pytest.param(stats_changed(failed_jobs=1), ["no job failed"], id="a-failed-job"),
        pytest.param(
            stats_changed(active=False),
            ["the plugin is active, with the environment's own library"],
            id="an-inactive-plugin",
        ),
        pytest.param(
            path_changed("default", counts=counts("int32", 1 << 20, 4, "group")),
            ["measured calls went through SwitchML"],
            id="measured-the-wrong-transport",
        ),
        pytest.param(
            path_changed("plain", counts=counts("int32", 1 << 20, 4)),
            ["measured gloo calls were not delegated"],
            id="measured-a-delegated-baseline",
        ),
        pytest.param(
            path_changed("default", mismatches=3),
            ["measured calls went through SwitchML"],
            id="measured-wrong-results",
        ),
    ],
)
def test_a_fault_on_one_rank_fails(spoil: Spoil, names: list[str]) -> None:
    result = judged(spoil)
    assert failed(result) == names
    assert "rank 1" in str(result) or names == ["no job failed"]


def test_a_library_from_elsewhere_fails() -> None:
    plan = small_plan()
    results = perfect_results(plan, Path("/usr/local"))
    result = judge(plan, results, perfect_stats(plan), prefix=PREFIX)
    assert failed(result) == ["the plugin is active, with the environment's own library"]
    assert "/usr/local/lib/libswitchml.so.1" in result.checks[0].found


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"sessions_opened": 2}, "the switch saw one session"),
        ({"num_workers": 1}, "the switch saw every rank"),
        ({"slots_completed": 5}, "the switch completed every slot of every job"),
        ({"elements_aggregated": 1024}, "the switch added up every packet's elements"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_switch_of_another_opinion_fails(changes: dict[str, int], name: str) -> None:
    assert failed(judged(stats=replace(perfect_stats(small_plan()), **changes))) == [name]  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", ["malformed", "unknown_worker", "bad_slot"])
def test_packets_that_the_switch_refused_fail(cause: str) -> None:
    stats = perfect_stats(small_plan())
    dropped = replace(stats.packets_dropped, **{cause: 1})
    assert failed(judged(stats=replace(stats, packets_dropped=dropped))) == ["the switch saw only well-formed packets"]


def test_bandwidth_is_the_median_call_of_the_slowest_rank() -> None:
    (row,) = judged().bandwidth
    # calls took 2, 1 and 9 ms on the slower rank through SwitchML, 4 ms each through gloo
    assert row.transport.median == pytest.approx((4 << 20) / 1e6 / 0.002)
    assert row.baseline.median == pytest.approx((4 << 20) / 1e6 / 0.004)
    assert row.ratio == pytest.approx(2.0)


def test_totals_say_who_carried_what() -> None:
    plugin, switch, gloo = judged().transports
    delegated = 1000 + 4 * 257 + 2000 + 4 * (1 << 20)
    assert (plugin.name, plugin.jobs, plugin.elements, plugin.bytes) == (
        "switchml",
        2 + 4 + 1 + 4,
        delegated,
        4 * delegated,
    )
    assert (switch.counted_by, switch.jobs, switch.elements) == ("switch", None, (8 + 1 + 12 + 16 + 4 * 4097) * 256)
    assert (gloo.name, gloo.jobs, gloo.elements, gloo.bytes) == (
        "gloo", 1 + 4, 10 + 4 * (1 << 20), 80 + 16 * (1 << 20)
    )  # fmt: skip


HERE = (Speed(dtype="float32", numel=1 << 20, warmups=1, repetitions=3),)


def ranks_here(*carried_by: str) -> list[RankResult]:
    """What ranks with nothing set write, one carried by each: memory, gloo, a switch, or memory for some calls only."""
    plan = replace(small_plan(), cases=(), speeds=HERE)
    results = perfect_results(plan, PREFIX, ranks=len(carried_by))
    for rank, carrier in enumerate(carried_by):
        jobs = {"gloo": 0, "partly": 2}.get(carrier, 4)
        host = None if carrier == "gloo" else HostShare(workers=2 if carrier == "switch" else 0)
        seen = counts("float32", 1 << 20, jobs) if jobs else replace(counts("float32", 0, 0), jobs={})
        result = path_changed("default", counts=seen)(results[rank])
        results[rank] = stats_changed(host=host, active=carrier != "gloo")(result)
    return results


def judged_here(results: list[RankResult]) -> MethodResult:
    plan = small_plan()
    return judge(plan, perfect_results(plan, PREFIX), perfect_stats(plan), prefix=PREFIX, here=(HERE, results))


@pytest.mark.parametrize(("carrier", "name"), [("memory", MEMORY), ("gloo", "gloo")])
def test_ranks_with_nothing_set_are_carried_by_memory_or_by_gloo(carrier: str, name: str) -> None:
    result = judged_here(ranks_here(carrier, carrier))
    assert failed(result) == []
    assert result.on_this_host is not None
    assert result.on_this_host.carrier == name
    assert [row.ratio for row in result.on_this_host.bandwidth] == [2.0]


@pytest.mark.parametrize(
    ("results", "found"),
    [
        (ranks_here("memory", "gloo"), "this host's memory on rank 0; gloo on rank 1"),
        (ranks_here("switch", "switch"), "several on rank 0, 1"),
        (ranks_here("memory", "partly"), "this host's memory on rank 0; several on rank 1"),
        (
            [path_changed("default", mismatches=3)(one) for one in ranks_here("memory", "memory")],
            "this host's memory, 6 wrong",
        ),
        ([stats_changed(failed_jobs=1)(one) for one in ranks_here("gloo", "gloo")], "gloo, 2 wrong"),
    ],
    ids=["one fell back", "a switch", "some calls", "wrong values", "failed jobs"],
)
def test_ranks_with_nothing_set_that_differ_or_are_wrong_fail(results: list[RankResult], found: str) -> None:
    result = judged_here(results)
    assert failed(result) == ["ranks of this host with nothing set are right, and carried by one"]
    assert result.checks[-1].found == found
