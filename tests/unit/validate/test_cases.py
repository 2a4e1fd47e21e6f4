# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.validate.cases import DTYPE_BYTES, OPS, SIZES, sized_case, standard_cases, standard_speeds


def test_the_table_has_every_type_with_every_operation_and_every_size() -> None:
    cases = standard_cases()
    assert len({case.name for case in cases}) == len(cases)
    assert {(dtype, op) for dtype in DTYPE_BYTES for op in OPS} <= {(case.dtype, case.op) for case in cases}
    assert {*SIZES} <= {case.numel for case in cases}


def test_a_smaller_table_has_the_same_sizes_and_nothing_else_that_is_larger() -> None:
    sized = {sized_case(dtype, numel).name for dtype in ("float32", "int32") for numel in SIZES}
    assert all(
        case.numel <= 5_000 or case.data == "ddp" for case in standard_cases(max_numel=5_000) if case.name not in sized
    )


def test_what_is_measured_is_no_larger_than_it_may_be() -> None:
    assert [speed.size_bytes for speed in standard_speeds(("float32",))] == [4 * (16 << 10), 4 << 20, 4 * (16 << 20)]
    (only,) = standard_speeds(("float64",), max_numel=10)
    assert (only.numel, only.size_bytes) == (10, 80)
    assert only.calls == only.warmups + only.repetitions
