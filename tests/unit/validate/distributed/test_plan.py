# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from typing import Any

import pytest

from channel_tools.validate.cases import Case, Speed
from channel_tools.validate.distributed.options import DistributedOptions
from channel_tools.validate.distributed.plan import (
    DistributedPlan,
    distributed_document,
    float_error_allowed,
    make_distributed_plan,
)


def test_every_type_meets_every_operation() -> None:
    plan = make_distributed_plan(DistributedOptions(backend="toy"))
    small = {(case.dtype, case.op) for case in plan.cases if case.data == "small"}
    assert len(small) == 5 * 3
    assert {case.dtype for case in plan.cases if case.data in {"positive", "range"}} == {"float32", "int32"}
    assert {(speed.dtype, speed.numel) for speed in plan.speeds} == {
        (dtype, numel) for dtype in ("float32", "int32") for numel in (16 << 10, 1 << 20, 16 << 20)
    }
    # four in flight twice, two and three steps of training, every other case once
    assert plan.calls == len(plan.cases) - 4 + 4 + 4 + 2 + 3


def test_a_backend_of_few_types_is_asked_for_no_more() -> None:
    plan = make_distributed_plan(DistributedOptions(backend="toy", dtypes=("int32",), ops=("SUM",), ddp=False))
    assert {case.dtype for case in plan.cases} == {"int32"}
    assert {case.op for case in plan.cases} == {"SUM"}
    assert {speed.dtype for speed in plan.speeds} == {"int32"}


def test_a_slow_backend_is_asked_for_small_tensors() -> None:
    options = DistributedOptions(backend="toy", dtypes=("float32", "float16"), max_numel=2500, ddp=False)
    plan = make_distributed_plan(options)
    assert max(case.numel for case in plan.cases) == 2500
    assert {case.numel for case in plan.cases if case.data == "positive"} == {1, 3, 255, 257, 2500}
    assert [(speed.dtype, speed.numel, speed.calls) for speed in plan.speeds] == [("float32", 2500, 6)]


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
