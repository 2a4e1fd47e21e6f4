# SPDX-License-Identifier: BSD-3-Clause
"""Which allreduces the validation of a process-group backend runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.validate.cases import (
    DTYPE_BYTES,
    FLOAT_ERROR_ALLOWED,
    SIZES,
    Case,
    Data,
    Speed,
    cases_document,
    ddp_case,
    demo_case,
    standard_speeds,
)
from channel_tools.validate.distributed.options import SMALLEST_NUMEL

if TYPE_CHECKING:
    from channel_tools.validate.distributed.options import DistributedOptions

_NUMEL = 1_003
# elements among which an error is relative to the largest
_UNIT = 256
_ROUNDING = 2.0**-24
_SIZED: dict[str, Data] = {"float32": "positive", "int32": "range"}


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedPlan:
    """Everything that the ranks do."""

    options: DistributedOptions
    cases: tuple[Case, ...]
    speeds: tuple[Speed, ...]

    @property
    def calls(self) -> int:
        """Allreduces of the cases; the measured calls come on top."""
        return sum(case.calls for case in self.cases)

    def messages(self, max_bytes: int) -> int:
        """Messages of at most ``max_bytes`` that all allreduces of a rank take, the measured ones too; 0: one each."""
        cases = [(case.dtype, case.numel, case.calls) for case in self.cases]
        done = [*cases, *((speed.dtype, speed.numel, speed.calls) for speed in self.speeds)]
        if not max_bytes:
            return sum(calls for _dtype, _numel, calls in done)
        return sum(calls * -(-numel * DTYPE_BYTES[dtype] // max_bytes) for dtype, numel, calls in done)


def make_distributed_plan(options: DistributedOptions) -> DistributedPlan:
    """All sizes for float32 and int32, all types with all operations, and what training does."""
    sized = tuple(dtype for dtype in _SIZED if dtype in options.dtypes)
    cases = [*_sum_cases(sized, options.max_numel), *_grid(options), *_special_cases(sized, options.max_numel)]
    if options.ddp and "float32" in options.dtypes:
        cases += [ddp_case(), demo_case()]
    return DistributedPlan(
        options=options, cases=tuple(cases), speeds=standard_speeds(sized, max_numel=options.max_numel)
    )


def float_error_allowed(ranks: int) -> float:
    """1e-6, and where so many ranks are summed that rounding alone may exceed it, the bound of that."""
    return max(FLOAT_ERROR_ALLOWED, ranks * _ROUNDING)


def distributed_document(plan: DistributedPlan, *, ranks: int) -> dict[str, object]:
    """The plan as the worker script reads it."""
    options = plan.options
    shared = cases_document(plan.cases, plan.speeds, unit=_UNIT, group_timeout_s=options.group_timeout_s)
    return {
        **shared,
        "ranks": ranks,
        "backend": options.backend,
        "device": options.device,
        "imports": list(options.imports),
        "counter": options.counter,
    }


def _sum_cases(dtypes: tuple[str, ...], max_numel: int) -> list[Case]:
    sizes = sorted({min(numel, max_numel) for numel in SIZES if numel})
    return [
        Case(name=f"{dtype} SUM of {numel}", dtype=dtype, data=_SIZED[dtype], numel=numel)
        for dtype in dtypes
        for numel in sizes
    ]


def _grid(options: DistributedOptions) -> list[Case]:
    """Small whole numbers, whose results are exact in every type."""
    return [
        Case(name=f"{dtype} {op}", dtype=dtype, data="small", numel=_NUMEL, op=op)
        for dtype in options.dtypes
        for op in options.ops
    ]


def _special_cases(dtypes: tuple[str, ...], max_numel: int) -> list[Case]:
    large, middle = min(1_000_003, max_numel), min(70_001, max_numel)
    cases = [
        Case(name="float32 SUM, both signs", dtype="float32", data="normal", numel=large),
        Case(name="float32 SUM with Inf and NaN", dtype="float32", data="nonfinite", numel=SMALLEST_NUMEL),
        Case(
            name="float32 SUM, four in flight", dtype="float32", data="positive", numel=middle, calls=4, is_async=True
        ),
        Case(name="int32 SUM, four in flight", dtype="int32", data="range", numel=middle, calls=4, is_async=True),
    ]
    return [case for case in cases if case.dtype in dtypes]
