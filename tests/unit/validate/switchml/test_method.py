# SPDX-License-Identifier: BSD-3-Clause
"""What a user's script is started with: a software switch, if libswitchml can use one and no other is named."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.ranks.hosts import Host
from channel_tools.ranks.plan import Placement, StartSettings, placement_here, plan_ranks
from channel_tools.system.errors import ConfigError, UsageError, ValidationError
from channel_tools.system.processes import Deadline
from channel_tools.validate.cases import SIZES, Speed
from channel_tools.validate.model import MethodResult
from channel_tools.validate.switchml.method import (
    ACCOUNT,
    MEMORY,
    DelegatedTotals,
    HostShare,
    LoopbackNetwork,
    RankResult,
    RunningSwitch,
    SwitchmlMethod,
    SwitchmlOptions,
    SwitchStats,
    choose_loopback_network,
    expected_slots,
    judge,
    make_plan,
    ranks_document,
    read_options,
    running_switch,
    slots_of_job,
    summary,
)
from tests.support.processes import TEST_TIMEOUT_S
from tests.unit.validate.fakes import counts, perfect_results, perfect_stats, small_plan, write_program

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

PREFIX = Path("/opt/env")
Spoil = Callable[[RankResult], RankResult]


STATS = (
    '{"schema": 1, "sessions_opened": 1, "num_workers": 2, "packets_received": 9, "slots_completed": 4, '
    '"packets_dropped": {"malformed": 0, "unknown_worker": 0, "bad_slot": 0, "stale": 0, "injected": 0}, '
    '"elements_aggregated": 1024, "results_sent": 8, "workers": []}'
)
GOOD = f"""
    import json, signal, sys
    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    signal.signal(signal.SIGTERM, lambda *_: (open(options["--stats-file"], "w").write({STATS!r}), sys.exit(0)))
    controller = options["--address"] + ":4711"
    print(json.dumps({{"event": "ready", "controller": controller, "data": "d", "version": "1"}}), flush=True)
    signal.pause()
"""


@pytest.fixture
def place(tmp_path: Path) -> Placement:
    return replace(placement_here(tmp_path, 2, variables={}), installed={"libswitchml": "0.1 udp_h0_0"})


def settings_of(place: Placement, *, switch: bool = False) -> StartSettings:
    return SwitchmlMethod().start_settings(place, stack="udp", options={}, switch=switch)


REMOTE = Host(name="localhost", ranks=2, is_local=False)


def test_ranks_of_one_host_need_no_switch(place: Placement) -> None:
    """Nor host reduction to be set: it is the plugin's default, and several times as fast as gloo."""
    for asked in (place, replace(place, installed={"libswitchml": "0.1 rdma_h0_0"}), replace(place, hosts=(REMOTE,))):
        assert settings_of(asked) == StartSettings(account=ACCOUNT, variables={"SWITCHML_CONTROLLER": "none"})


def test_a_single_rank_has_nothing_to_reduce(place: Placement) -> None:
    assert settings_of(replace(place, ranks=1)) == StartSettings(account=ACCOUNT)


def test_a_switch_that_is_to_be_tried_runs_beside_the_ranks(place: Placement, tmp_path: Path) -> None:
    settings = settings_of(place, switch=True)
    (switch,) = settings.services
    controller = settings.variables["SWITCHML_CONTROLLER"]
    lines = [*plan_ranks(place, settings, stack="udp", words=["train.py"], folder=tmp_path).lines()]
    assert f"export SWITCHML_CONTROLLER={controller}" in lines
    address, port = controller.split(":")
    assert f"switchml-switch --address {address} --controller-port {port} &" in lines
    assert settings.variables["SWITCHML_HOST_REDUCTION"] == "off"
    assert switch.ready_line is not None
    assert switch.ready_line.search('{"event": "ready", "controller": "127.0.0.1:1"}')


def test_ranks_of_one_other_host_go_through_a_switch_that_is_to_be_tried(place: Placement) -> None:
    settings = settings_of(replace(place, hosts=(REMOTE,)), switch=True)
    assert {*settings.variables} == {"SWITCHML_CONTROLLER", "SWITCHML_HOST_REDUCTION"}


@pytest.mark.parametrize(
    ("switch", "variables", "message"),
    [
        (True, {"SWITCHML_CONTROLLER": "s:1"}, "SWITCHML_CONTROLLER=s:1 names another switch"),
        (True, {"SWITCHML_HOST_REDUCTION": "on"}, "SWITCHML_HOST_REDUCTION=on keeps the ranks of a host from using"),
        (True, {"SWITCHML_ENABLE": "0"}, "SWITCHML_ENABLE=0 switches the plugin off"),
        (False, {"SWITCHML_HOST_REDUCTION": "Off"}, "each rank would go through a switch, and SWITCHML_CONTROLLER"),
    ],
    ids=["another", "reduction on", "plugin off", "reduction off"],
)
@pytest.mark.parametrize("of_the_user", [True, False], ids=["the user's", "the environment's"])
def test_variables_that_contradict_the_switch_are_refused(
    place: Placement, variables: dict[str, str], message: str, *, switch: bool, of_the_user: bool
) -> None:
    environ = variables if of_the_user else {}
    with pytest.raises(UsageError, match=message):
        settings_of(replace(place, environ=environ, variables=variables), switch=switch)


def test_on_several_hosts_the_switch_has_an_address_that_the_others_reach(place: Placement) -> None:
    settings = settings_of(replace(place, hosts=(*place.hosts, REMOTE)))
    assert len(settings.services) == 1
    assert {*settings.variables} == {"SWITCHML_CONTROLLER"}  # ranks of a host are one worker


@pytest.mark.parametrize(
    ("build", "environ", "variables"),
    [
        ("udp_h0_0", {"SWITCHML_CONTROLLER": "switch:1"}, {}),
        ("dummy_h0_0", {}, {"SWITCHML_CONTROLLER": "none"}),
    ],
    ids=["a switch of the user's", "dummy"],
)
def test_no_switch_is_started_that_is_not_needed(
    place: Placement, build: str, environ: dict[str, str], variables: dict[str, str]
) -> None:
    asked = replace(place, installed={"libswitchml": f"0.1 {build}"}, environ=environ)
    assert settings_of(asked) == StartSettings(account=ACCOUNT, variables=variables)


def test_a_transport_that_needs_a_switch_of_the_users_says_so(place: Placement) -> None:
    asked = replace(place, installed={"libswitchml": "0.1 rdma_h0_0"}, hosts=(*place.hosts, REMOTE))
    with pytest.raises(UsageError, match="no software switch can be started for libswitchml's rdma"):
        settings_of(asked)
    with pytest.raises(UsageError, match="no software switch can be started for libswitchml's dummy"):
        settings_of(replace(place, installed={"libswitchml": "0.1 dummy_h0_0"}), switch=True)


REPORT: dict[str, Any] = {
    "delegated": {"float32": {"jobs": 3, "elements": 1 << 20, "bytes": 4 << 20}, "int32": {"jobs": 0, "bytes": 0}},
    "fallbacks": {"dtype": 2, "reduce_op": 1, "group": 0},
    "failure": None,
    "library": {"transport": "udp"},
    "host": {"ranks": [0, 1], "workers": 0},
    "controller": "10.0.0.1:50099",
}
NOTHING = {"float32": {"jobs": 0, "elements": 0, "bytes": 0}}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "the memory of this host carried 3 allreduces of rank 0, 4 MiB; gloo carried 3 allreduces ("),
        ({"host": {"workers": 2}}, "SwitchML (udp, controller 10.0.0.1:50099) carried 3 allreduces of rank 0"),
        (
            {"host": {"workers": 2}, "library": {"transport": "dummy"}},
            "nothing carried, the transport dummy multiplied",
        ),
        ({"delegated": NOTHING}, "SwitchML carried nothing; gloo carried 3 allreduces ("),
        ({"delegated": NOTHING, "fallbacks": {}, "failure": "gone"}, "SwitchML carried nothing; SwitchML's session"),
    ],
    ids=["memory", "switch", "dummy", "gloo", "failed"],
)
def test_the_line_of_a_launch_says_what_carried(changes: dict[str, Any], line: str) -> None:
    assert summary({**REPORT, **changes}).startswith(line)


def test_a_launch_without_a_report_says_that_no_session_was_opened() -> None:
    assert "SwitchML opened no session on rank 0" in summary(None)


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


@pytest.mark.parametrize(
    ("dtype", "numel", "slots"),
    [
        pytest.param("int32", 0, 1, id="the-description-alone"),
        pytest.param("int32", 1, 2, id="padded"),
        pytest.param("int32", 256, 2, id="full"),
        pytest.param("int32", 257, 3, id="one-more"),
        pytest.param("int32", 16 << 20, 65_536 + 1, id="64-MiB"),
        pytest.param("float32", 0, 1, id="no-exponents-of-nothing"),
        pytest.param("float32", 1, 1, id="exact-beside-the-description"),
        pytest.param("float32", 22, 1, id="as-many-as-fit-there"),
        pytest.param("float32", 23, 2, id="exponent-and-values"),
        pytest.param("float32", 252 * 256, 504, id="as-many-as-the-window"),
        pytest.param("float32", 16 << 20, 65_536 + 252, id="a-window-of-exponents"),
    ],
)
def test_slots_of_a_job(dtype: str, numel: int, slots: int) -> None:
    assert slots_of_job(dtype, numel, SwitchmlOptions(), workers=2) == slots


def test_threads_take_slices_of_their_own() -> None:
    options = SwitchmlOptions(num_threads=3, packet_numel=64, max_outstanding_packets=12)
    # slices of 334, 333 and 333 elements: 6 packets each, one that describes the job or 4 of the window's 12 per thread
    assert slots_of_job("int32", 1000, options, workers=2) == 18 + 3
    assert slots_of_job("float32", 1000, options, workers=2) == 18 + 12
    # slices of 6, 5 and 5 elements, of which (64 - 2 * 2) // 11 fit beside the descriptions
    assert slots_of_job("float32", 16, options, workers=2) == 2 + 1 + 1
    assert slots_of_job("float32", 16, options, workers=32) == 2 + 2 + 2


@given(
    numel=st.integers(min_value=0, max_value=100_000),
    threads=st.integers(min_value=1, max_value=8),
    packet_numel=st.sampled_from([64, 256]),
)
def test_slots_hold_all_elements_and_little_more(numel: int, threads: int, packet_numel: Literal[64, 256]) -> None:
    options = SwitchmlOptions(num_threads=threads, packet_numel=packet_numel)
    held = slots_of_job("int32", numel, options, workers=2) * packet_numel
    assert numel < held <= numel + 2 * threads * packet_numel


def test_the_plans_slots_are_those_of_its_jobs() -> None:
    floats, none, integers, infinities, measured = 4 + 4, 1, 4 * (2 + 1), 8 + 8, 4 * (4096 + 1)
    assert expected_slots(small_plan(), 2) == floats + none + integers + infinities + measured


class TestStandardPlan:
    def test_has_the_promised_sizes_of_both_types(self) -> None:
        plan = make_plan(SwitchmlOptions())
        assert {0, 1, 3, 255, 257, 16 << 20} <= set(SIZES)
        for dtype in ("float32", "int32"):
            assert set(SIZES) <= {case.numel for case in plan.cases if case.dtype == dtype and case.is_delegated}

    def test_has_every_reason_to_fall_back(self) -> None:
        reasons = {case.reason for case in make_plan(SwitchmlOptions()).cases}
        assert reasons == {"", "dtype", "reduce_op", "group"}

    def test_names_each_case_once(self) -> None:
        names = [case.name for case in make_plan(SwitchmlOptions()).cases]
        assert len(set(names)) == len(names)

    def test_is_written_for_the_ranks(self) -> None:
        plan = make_plan(SwitchmlOptions())
        document = json.loads(json.dumps(ranks_document(plan, local_addresses=["127.1.2.10"])))
        assert document["local_addresses"] == ["127.1.2.10"]
        assert [case["name"] for case in document["cases"]] == [case.name for case in plan.cases]
        assert all("reason" not in case for case in document["cases"])


class TestOptions:
    def test_are_taken(self) -> None:
        assert read_options("udp", {"num_threads": 2, "job_timeout_s": 5}) == SwitchmlOptions(
            num_threads=2, job_timeout_s=5.0
        )

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            pytest.param({"num_thread": 2}, r"stack udp: validate: num_thread: ", id="unknown"),
            pytest.param({"num_threads": 0}, r"num_threads: .*greater than 0", id="zero"),
            pytest.param({"num_threads": "many"}, r"num_threads: .*integer", id="no-number"),
            pytest.param({"packet_numel": 128}, r"packet_numel: .*64 or 256", id="no-size-class"),
            pytest.param({"max_outstanding_packets": 5000}, r"max_outstanding_packets: .*4096", id="too-large"),
        ],
    )
    def test_that_are_wrong_are_named(self, values: dict[str, object], message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            read_options("udp", values)
        assert caught.value.hint is not None
        assert "max_outstanding_packets" in caught.value.hint


def test_a_transport_that_needs_more_than_loopback_is_refused_with_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"stack rdma .* it needs an adapter"):
        SwitchmlMethod().check(stack="rdma", ranks=2, options={"needs": "an adapter"})
    with pytest.raises(UsageError) as refused:
        SwitchmlMethod().check(stack="dummy", ranks=2, options={"needs": "a transport", "instead": "validate udp"})
    assert refused.value.hint == "validate udp"
    SwitchmlMethod().check(stack="udp", ranks=2, options={})


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "env"


def run(prefix: Path, code: str, *, limit_s: float = TEST_TIMEOUT_S) -> AbstractContextManager[RunningSwitch]:
    write_program(prefix / "bin/switchml-switch", code)
    return running_switch(
        prefix=prefix, variables={}, address="127.9.9.1", folder=prefix.parent, deadline=Deadline.after(limit_s)
    )


def test_a_switch_is_started_and_its_counters_read(prefix: Path) -> None:
    with run(prefix, GOOD) as switch:
        assert switch.ready.controller == "127.9.9.1:4711"
        stats = switch.stop()
    assert (stats.sessions_opened, stats.num_workers, stats.elements_aggregated) == (1, 2, 1024)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param("import sys; sys.exit('address in use')", r"(?s)exit status 1.*address in use", id="dies"),
        pytest.param(
            "print('hello', flush=True); input()", r"expected a ReadyLine in JSON.*found: hello", id="no-json"
        ),
        pytest.param('print(\'{"event": "ready"}\', flush=True)', r"controller: Field required", id="no-controller"),
    ],
)
def test_one_that_does_not_get_ready_is_an_error(prefix: Path, code: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message), run(prefix, code):
        pytest.fail("it is not ready")


def test_one_that_stays_silent_is_an_error_in_time(prefix: Path) -> None:
    code = "import signal; signal.pause()"
    with pytest.raises(ValidationError, match=r"not ready within 0\.3 s"), run(prefix, code, limit_s=0.3):
        pytest.fail("it is not ready")


def test_an_environment_without_one_is_an_error(prefix: Path) -> None:
    with (
        pytest.raises(ValidationError, match="has no software switch"),
        running_switch(prefix=prefix, variables={}, address="x", folder=prefix, deadline=Deadline.after(1)),
    ):
        pytest.fail("there is none")


def test_missing_counters_are_an_error(prefix: Path) -> None:
    code = GOOD.replace(repr(STATS), repr('{"sessions_opened": 1}'))
    with (
        run(prefix, code) as switch,
        pytest.raises(ValidationError, match="expected a SwitchStats in JSON; num_workers"),
    ):
        switch.stop()


def test_addresses_are_distinct_and_on_loopback() -> None:
    network = choose_loopback_network()
    addresses = [network.switch, *network.workers(32)]
    assert len(set(addresses)) == 33
    assert all(ipaddress.ip_address(address).is_loopback for address in addresses)


def test_runs_take_networks_of_their_own() -> None:
    assert len({choose_loopback_network().base for _ in range(50)}) > 40


def test_a_port_taken_everywhere_is_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("0.0.0.0", 0))  # noqa: S104  (to be in the way on every address)
        port = holder.getsockname()[1]
        with pytest.raises(ValidationError, match=f"UDP port {port} free"):
            choose_loopback_network(port)


def test_workers_follow_their_rank() -> None:
    assert LoopbackNetwork(base="127.4.5").workers(2) == ("127.4.5.10", "127.4.5.11")
