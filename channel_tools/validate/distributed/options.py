# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: its settings, one process-group backend under one launcher, and the allreduces it runs.

A service is a program of the validated environment that has to run before and during the ranks. Its command may use
``{prefix}``, ``{ranks}`` and ``{port}``; its variables for the ranks may also use the named groups of ``ready_line``,
since a program that chooses its own port prints it when it is ready.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, StringConstraints, model_validator
from pydantic.dataclasses import dataclass as model_dataclass

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
    from collections.abc import Iterable, Mapping

Launcher = Literal["mpiexec", "torchrun"]
Device = Literal["cpu", "cuda"]
Affinity = Literal["none", "oneccl"]
Dtype = Literal["float32", "float64", "float16", "bfloat16", "int32", "int64"]
Op = Literal["SUM", "MAX", "MIN"]

_Backend = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
_Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$")]
_Counter = Annotated[str, StringConstraints(pattern=r"^(|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$")]
_FileName = Annotated[str, StringConstraints(pattern=r"^[^/\s]+$")]
_Need = Annotated[str, StringConstraints(pattern=r"^(gpu|amdgpu|rdma|(library|program|variable):[^\s/]+)$")]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
RANK_GROUP = "rank"
_NAMES = frozenset({"prefix", "ranks", "port"})
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_Word = Annotated[str, StringConstraints(min_length=1)]
_Port = Annotated[str, StringConstraints(pattern=r"^(|[0-9]{1,5}|\{port\})$")]


@model_dataclass(frozen=True, kw_only=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class ServiceOptions:
    """A service: its command, how to recognise that it is ready, the ranks' variables, how its log counts data.

    Each field is described in docs/how-to/validate.md.
    """

    command: Annotated[tuple[_Word, ...], Field(min_length=1)]
    ready_line: re.Pattern[str] | None = None
    ready_port: _Port = ""
    ready_timeout_s: PositiveFloat = 60.0
    rank_environment: dict[_Variable, str] = field(default_factory=dict)
    carried_line: re.Pattern[str] | None = None
    carried_bytes: NonNegativeInt = 0

    @model_validator(mode="after")
    def _is_usable(self) -> ServiceOptions:
        if (self.ready_line is None) == (not self.ready_port):
            raise ValueError("needs exactly one of ready_line and ready_port")
        if self.carried_line is not None and RANK_GROUP not in self.carried_line.groupindex:
            raise ValueError(f"carried_line needs a group (?P<{RANK_GROUP}>...)")
        if self.carried_bytes and self.carried_line is None:
            raise ValueError("carried_bytes needs carried_line: it is the number of bytes for one such line")
        _refuse_unknown([*self.command, self.ready_port], _NAMES)
        groups = {} if self.ready_line is None else self.ready_line.groupindex
        _refuse_unknown(self.rank_environment.values(), _NAMES | set(groups))
        return self

    @property
    def name(self) -> str:
        """Its name in messages: that of the program."""
        return PurePath(self.command[0]).name


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
    environment: dict[_Variable, str] = field(default_factory=dict)
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


def filled(text: str, values: Mapping[str, str]) -> str:
    """``text`` with its placeholders replaced."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _refuse_unknown(texts: Iterable[str], known: Iterable[str]) -> None:
    unknown = {name for text in texts for name in _PLACEHOLDER.findall(text)} - set(known)
    if unknown:
        raise ValueError(f"{{{min(unknown)}}} is not a known placeholder; known are {', '.join(sorted(known))}")


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
