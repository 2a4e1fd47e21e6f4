# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from channel_tools.validate.cases import Case, Speed, standard_cases
from channel_tools.validate.distributed.method import (
    DistributedOptions,
    DistributedPlan,
    distributed_document,
    float_error_allowed,
    make_distributed_plan,
)
from channel_tools.validate.model import OmittedCase
from channel_tools.validate.switchml.method import SwitchmlOptions, make_plan


def test_every_stack_is_asked_for_the_same_table() -> None:
    everything = DistributedOptions(
        backend="toy", dtypes=("float32", "float64", "float16", "bfloat16", "int32", "int64")
    )
    plan = make_distributed_plan(everything)
    table = [case.name for case in standard_cases()]
    assert [case.name for case in plan.cases] == [case.name for case in make_plan(SwitchmlOptions()).cases] == table
    assert plan.omitted == ()
    grid = {(case.dtype, case.op): case.data for case in plan.cases if case.name == f"{case.dtype} {case.op}"}
    assert len(grid) == 6 * 3
    # a double that travelled as a single, or an int64 as an int32, would sum small numbers right
    assert {dtype for (dtype, _), data in grid.items() if data == "range"} == {"float64", "int32", "int64"}
    assert {(speed.dtype, speed.numel) for speed in plan.speeds} == {
        (dtype, numel) for dtype in ("float32", "int32") for numel in (16 << 10, 1 << 20, 16 << 20)
    }
    # four in flight twice, two and three steps of training, every other case once
    assert plan.calls == len(plan.cases) - 4 + 4 + 4 + 2 + 3


def test_what_a_stack_does_not_offer_is_a_row_with_its_reason() -> None:
    options = DistributedOptions(
        backend="toy", dtypes=("int32",), ops=("SUM",), ddp=False, not_offered={"strided": "s", "empty": "e"}
    )
    plan = make_distributed_plan(options)
    assert {(case.dtype, case.op) for case in plan.cases} == {("int32", "SUM")}
    assert {speed.dtype for speed in plan.speeds} == {"int32"}
    reasons = {case.name: case.reason for case in plan.omitted}
    assert reasons["int32 SUM of 0"] == "e"
    assert reasons["int32 MAX"] == "MAX is not among the stack's ops"
    assert reasons["float32 SUM, strided"] == "float32 is not among the stack's dtypes"
    assert len(plan.cases) + len(plan.omitted) == len(standard_cases())


def test_a_slow_backend_is_asked_for_small_tensors() -> None:
    options = DistributedOptions(backend="toy", dtypes=("float32", "float16"), max_numel=2500)
    plan = make_distributed_plan(replace(options, ddp=False))
    assert max(case.numel for case in plan.cases) == 2500
    sized = {case.numel for case in plan.cases if case.name.startswith("float32 SUM of")}
    assert sized == {0, 1, 3, 255, 257, 2500}
    too_large = {case.name for case in plan.omitted if case.reason == "the stack is limited to 2500 elements"}
    assert too_large == {"float32 SUM of 1000003", "float32 SUM of 16777216"}
    assert [(speed.dtype, speed.numel, speed.calls) for speed in plan.speeds] == [("float32", 2500, 6)]
    assert "DistributedDataParallel" in [case.name for case in make_distributed_plan(options).cases]


def test_what_an_allreduce_cannot_show_is_a_row_too() -> None:
    plan = make_distributed_plan(DistributedOptions(backend="toy", not_shown={"cards": "need a driver"}))
    assert plan.omitted[-1] == OmittedCase(name="cards", reason="need a driver")


def test_messages_are_counted_by_their_size() -> None:
    plan = DistributedPlan(
        options=DistributedOptions(backend="toy"),
        cases=(
            Case(name="one", dtype="float32", data="positive", numel=1024),
            Case(name="two", dtype="float64", data="small", numel=513, calls=2),
        ),
        speeds=(Speed(dtype="int32", numel=3000, warmups=1, repetitions=2),),
    )
    assert plan.messages(4096) == 1 + 2 * 2 + 3 * 3
    assert plan.messages(0) == 1 + 2 + 3


@pytest.mark.parametrize(("ranks", "allowed"), [(2, 1e-6), (16, 1e-6), (32, 32 * 2.0**-24)])
def test_the_error_allowed_grows_with_the_bound_of_rounding(ranks: int, allowed: float) -> None:
    assert float_error_allowed(ranks) == allowed


def test_the_workers_document_is_plain() -> None:
    options = DistributedOptions(backend="ccl", imports=("one", "two"), device="cuda", group_timeout_s=7.0)
    document: dict[str, Any] = json.loads(json.dumps(distributed_document(make_distributed_plan(options), ranks=3)))
    assert (document["ranks"], document["backend"], document["device"]) == (3, "ccl", "cuda")
    assert document["imports"] == ["one", "two"]
    assert document["group_timeout_s"] == 7.0
    assert set(document["cases"][0]) == {
        "name", "dtype", "data", "numel", "op", "calls", "group", "is_async", "is_strided", "layers",
    }  # fmt: skip
