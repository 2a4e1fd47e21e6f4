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
    Speed,
    cases_document,
    sized_case,
    standard_cases,
    standard_speeds,
)
from channel_tools.validate.model import OmittedCase

if TYPE_CHECKING:
    from channel_tools.validate.distributed.options import DistributedOptions

# elements among which an error is relative to the largest
_UNIT = 256
_ROUNDING = 2.0**-24
_SPEED_DTYPES = ("float32", "int32")


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedPlan:
    """Everything that the ranks do."""

    options: DistributedOptions
    cases: tuple[Case, ...]
    speeds: tuple[Speed, ...]
    omitted: tuple[OmittedCase, ...] = ()

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
    """The table of all stacks, less what this one does not offer; its own largest size where that is smaller."""
    table = list(standard_cases(max_numel=options.max_numel))
    sized = tuple(dtype for dtype in _SPEED_DTYPES if dtype in options.dtypes)
    if options.max_numel not in SIZES:
        table += [sized_case(dtype, options.max_numel) for dtype in sized]
    reasons = [(case, _omitted_because(case, options)) for case in table]
    omitted = {case.name: reason for case, reason in reasons if reason} | options.not_shown
    return DistributedPlan(
        options=options,
        cases=tuple(case for case, reason in reasons if not reason),
        omitted=tuple(OmittedCase(name=name, reason=reason) for name, reason in omitted.items()),
        speeds=standard_speeds(sized, max_numel=options.max_numel),
    )


def float_error_allowed(ranks: int) -> float:
    """1e-6, and where so many ranks are summed that rounding alone may exceed it, the bound of that."""
    return max(FLOAT_ERROR_ALLOWED, ranks * _ROUNDING)


def distributed_document(plan: DistributedPlan, *, ranks: int, is_on_hosts: bool = False) -> dict[str, object]:
    """The plan as the worker script reads it."""
    options = plan.options
    limit_s = options.group_timeout_s
    shared = cases_document(plan.cases, plan.speeds, unit=_UNIT, group_timeout_s=limit_s, is_on_hosts=is_on_hosts)
    return {
        **shared,
        "ranks": ranks,
        "backend": options.backend,
        "device": options.device,
        "imports": list(options.imports),
        "counter": options.counter,
    }


def _omitted_because(case: Case, options: DistributedOptions) -> str:
    """Why this row of the table is not asked of the stack; "" where it is."""
    if case.dtype not in options.dtypes:
        return f"the stack carries no {case.dtype}"
    if case.op not in options.ops:
        return f"the stack has no {case.op}"
    if case.data == "ddp":
        return "" if options.ddp else "the stack does no DistributedDataParallel"
    if case.numel > options.max_numel:
        return f"the stack is asked for at most {options.max_numel} elements"
    return options.not_offered.get(case.feature, "") if case.feature else ""
