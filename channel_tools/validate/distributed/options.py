# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: its settings, a process-group backend under one launcher, and the allreduces it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, StringConstraints
from pydantic.dataclasses import dataclass as model_dataclass

from channel_tools.ranks.services import ServiceOptions, VariableName
from channel_tools.validate.cases import (
    DTYPE_BYTES,
    FLOAT_ERROR_ALLOWED,
    SIZES,
    SMALLEST_NUMEL,
    Case,
    Feature,
    Speed,
    cases_document,
    sized_case,
    standard_cases,
    standard_speeds,
)
from channel_tools.validate.model import OmittedCase, read_method_options

if TYPE_CHECKING:
    from collections.abc import Mapping

Launcher = Literal["mpiexec", "torchrun"]
Device = Literal["cpu", "cuda"]
Affinity = Literal["none", "oneccl"]
Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"]
Op = Literal["SUM", "MAX", "MIN"]
Variables = dict[VariableName, str]

_Backend = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$")]
_Counter = Annotated[str, StringConstraints(pattern=r"^(|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")]
_FileName = Annotated[str, StringConstraints(pattern=r"^[^/\s]+$")]
_Need = Annotated[str, StringConstraints(pattern=r"^(gpu|amdgpu|rdma|(library|program|variable):[^\s/]+)$")]
_Word = Annotated[str, StringConstraints(min_length=1)]


@model_dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class DistributedOptions:
    """How ranks are started, what must carry their allreduces, and what the machine must have.

    Each field is described in docs/how-to/validate.md.
    """

    backend: _Backend
    launcher: Launcher = "torchrun"
    launcher_arguments: tuple[str, ...] = ()
    device: Device = "cpu"
    imports: tuple[_Module, ...] = ()
    environment: Variables = field(default_factory=dict)
    affinity: Affinity = "none"
    services: tuple[ServiceOptions, ...] = ()
    event: str = ""
    counter: _Counter = ""
    libraries: tuple[_FileName, ...] = ()
    site_libraries: tuple[_FileName, ...] = ()
    needs: tuple[_Need, ...] = ()
    dtypes: tuple[Dtype, ...] = ("float32", "float64", "int32", "int64", "bfloat16")
    ops: tuple[Op, ...] = ("SUM", "MAX", "MIN")
    max_numel: Annotated[int, Field(ge=SMALLEST_NUMEL)] = max(SIZES)
    ddp: bool = True
    not_offered: dict[Feature, _Word] = field(default_factory=dict)
    not_shown: dict[_Word, _Word] = field(default_factory=dict)
    max_ranks: Annotated[PositiveInt, Field(le=32)] = 32
    group_timeout_s: PositiveFloat = 60.0


def read_distributed_options(stack: str, values: Mapping[str, object]) -> DistributedOptions:
    """The options of a stack's ``validate`` block. Raises ConfigError naming each unknown key or unusable value."""
    return read_method_options(DistributedOptions, stack=stack, method="distributed", values=values)


# the number of elements whose largest is the reference of an error
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
        """The number of allreduces of the cases, without the measured calls."""
        return sum(case.calls for case in self.cases)

    def messages(self, max_bytes: int) -> int:
        """The number of messages of at most ``max_bytes`` (0: any) for all allreduces of a rank."""
        cases = [(case.dtype, case.numel, case.calls) for case in self.cases]
        done = [*cases, *((speed.dtype, speed.numel, speed.calls) for speed in self.speeds)]
        if not max_bytes:
            return sum(calls for _dtype, _numel, calls in done)
        return sum(calls * -(-numel * DTYPE_BYTES[dtype] // max_bytes) for dtype, numel, calls in done)


def make_distributed_plan(options: DistributedOptions) -> DistributedPlan:
    """The table of all stacks without what this one does not offer, limited to its own largest size."""
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
    """1e-6, or the bound of rounding errors if that many ranks may exceed it by rounding alone."""
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
    """Why this row of the table does not apply to the stack; "" if it does."""
    if case.dtype not in options.dtypes:
        return f"{case.dtype} is not among the stack's dtypes"
    if case.op not in options.ops:
        return f"{case.op} is not among the stack's ops"
    if case.data == "ddp":
        return "" if options.ddp else "the stack does not support DistributedDataParallel"
    if case.numel > options.max_numel:
        return f"the stack is limited to {options.max_numel} elements"
    return options.not_offered.get(case.feature, "") if case.feature else ""
