# SPDX-License-Identifier: BSD-3-Clause
"""The allreduces of the SwitchML validation, and the packets they must cause.

Every number that a counter is compared with is computed here from the plan by the rules of the wire protocol, before
anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt

from channel_tools.validate.cases import (
    FLOAT_ERROR_ALLOWED,
    Case,
    Speed,
    cases_document,
    standard_cases,
    standard_speeds,
)
from channel_tools.validate.model import read_method_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TRANSPORT = "switchml"
MAX_RANKS = 32
ELEMENT_BYTES = 4
WIRE_DTYPES = {"float32": "float32", "float16": "float32", "bfloat16": "float32", "int32": "int32"}
"""The type on the wire of each dtype; the plugin counts jobs by it."""
HOST_CHUNK_NUMEL = 16 * 65_552
"""Elements that ranks of one host send as one job (torch-switchml's host_plan.h)."""
_ROUNDING = 2.0**-24
_DESCRIPTION_WORDS, _EXACT_WORDS = 2, 11
"""Values of a packet that a worker's description takes, and an element of float32 that is summed exactly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchmlOptions:
    """The transport's parameters (libswitchml's variables of the same names) and time limits of the validation."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    num_threads: PositiveInt = 1
    packet_numel: Literal[64, 256] = 256
    max_outstanding_packets: Annotated[int, Field(ge=1, le=4096)] = 252
    connect_timeout_s: PositiveFloat = 10.0
    job_timeout_s: PositiveFloat = 20.0
    group_timeout_s: PositiveFloat = 60.0
    needs: str = ""
    """What the transport needs besides this host's loopback network; such a stack cannot be validated here."""
    instead: str = ""
    """What to do with such a stack, if no machine is known where it could be validated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchmlPlan:
    """Everything that the ranks do.

    ``ranks_per_worker`` ranks of a host add in shared memory and are one worker; if 1, each rank is a worker.
    """

    options: SwitchmlOptions
    cases: tuple[Case, ...]
    speeds: tuple[Speed, ...]
    ranks_per_worker: int = 1

    @property
    def float_error_allowed(self) -> float:
        """The allowed error of a float32 sum: that of the wire, plus rounding when adding inside a host."""
        return FLOAT_ERROR_ALLOWED + (self.ranks_per_worker - 1) * _ROUNDING

    @property
    def speeds_here(self) -> tuple[Speed, ...]:
        """The sizes that are also measured as users' ranks of one host run, with nothing set: those of float32."""
        return tuple(speed for speed in self.speeds if speed.dtype == "float32")

    @property
    def trains(self) -> bool:
        """Whether a case is a training with DistributedDataParallel."""
        return any(case.layers for case in self.cases)

    def delegated_jobs(self) -> tuple[tuple[str, int, int], ...]:
        """All jobs that SwitchML must carry: dtype on the wire, elements of each, how many."""
        cases = [(WIRE_DTYPES[case.dtype], case.numel, case.calls) for case in self.cases if case.is_delegated]
        return (*cases, *((speed.dtype, speed.numel, speed.calls) for speed in self.speeds))


def make_plan(options: SwitchmlOptions, *, ranks_per_worker: int = 1) -> SwitchmlPlan:
    """The standard plan."""
    return SwitchmlPlan(
        options=options,
        cases=tuple(map(_routed, standard_cases())),
        speeds=standard_speeds(("float32", "int32")),
        ranks_per_worker=ranks_per_worker,
    )


def read_options(stack: str, values: Mapping[str, object]) -> SwitchmlOptions:
    """The options of a stack's ``validate`` block. Raises ConfigError naming each unknown key or unusable value."""
    return read_method_options(SwitchmlOptions, stack=stack, method="switchml", values=values)


def ranks_document(
    plan: SwitchmlPlan, *, local_addresses: Sequence[str] = (), is_on_hosts: bool = False
) -> dict[str, object]:
    """The plan as the worker script reads it; ``local_addresses`` are by rank, empty if not needed."""
    shared = cases_document(
        plan.cases,
        plan.speeds,
        unit=plan.options.packet_numel,
        group_timeout_s=plan.options.group_timeout_s,
        is_on_hosts=is_on_hosts,
    )
    return {**shared, "local_addresses": list(local_addresses)}


def slots_of_job(dtype: str, numel: int, options: SwitchmlOptions, *, workers: int) -> int:
    """Slot uses that the switch completes for one job (wire protocol, sections 3 and 5).

    A job is split into one slice per thread; a slice takes a packet per ``packet_numel`` elements, the last one padded.
    Before these, float32 has one window of packets with the first exponents, and int32 one packet. The first packet
    describes the job to the other ranks, so the first thread sends one even if the job has no elements. If all elements
    of a float32 slice fit behind the descriptions (libswitchml's exact.hpp), that packet is the only one.
    """
    exact = (options.packet_numel - _DESCRIPTION_WORDS * workers) // _EXACT_WORDS
    threads = options.num_threads
    window = options.max_outstanding_packets // threads
    slots = 0
    for thread in range(threads):
        elements = numel // threads + (1 if thread < numel % threads else 0)
        packets = -(-elements // options.packet_numel)
        if packets == 0 and thread > 0:
            continue
        if dtype == "float32" and 0 < elements <= exact:
            slots += 1
        else:
            slots += packets + (min(window, packets) if dtype == "float32" and packets else 1)
    return slots


def expected_slots(plan: SwitchmlPlan, ranks: int) -> int:
    """Slot uses that the switch completes for the whole plan of so many ranks."""
    workers = ranks // plan.ranks_per_worker
    return sum(
        _slots_of_allreduce(plan, dtype, numel, workers) * calls for dtype, numel, calls in plan.delegated_jobs()
    )


def _slots_of_allreduce(plan: SwitchmlPlan, dtype: str, numel: int, workers: int) -> int:
    """Slot uses of one job, or of the full chunks and the smaller last one into which ranks of a host split it."""
    if plan.ranks_per_worker == 1:
        return slots_of_job(dtype, numel, plan.options, workers=workers)
    chunks, remainder = divmod(numel, HOST_CHUNK_NUMEL)
    full = slots_of_job(dtype, HOST_CHUNK_NUMEL, plan.options, workers=workers)
    return chunks * full + slots_of_job(dtype, remainder, plan.options, workers=workers)


def _routed(case: Case) -> Case:
    """The case with the plugin's reason for leaving it to gloo, if any; the plugin checks in this order."""
    if case.group != "default":
        return replace(case, reason="group")
    if case.op != "SUM":
        return replace(case, reason="reduce_op")
    return case if case.dtype in WIRE_DTYPES else replace(case, reason="dtype")
