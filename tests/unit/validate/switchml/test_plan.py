# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.validate.cases import SIZES
from channel_tools.validate.switchml.method import SwitchmlMethod
from channel_tools.validate.switchml.plan import (
    SwitchmlOptions,
    expected_slots,
    make_plan,
    ranks_document,
    read_options,
    slots_of_job,
)
from tests.unit.validate.fakes import small_plan


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
