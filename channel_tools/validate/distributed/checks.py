# SPDX-License-Identifier: BSD-3-Clause
"""Checks a run of a process-group backend: pure, from the plan and the ranks' results.

Five facts show what carried the data: the backend object of the default group, the profiler's count of its calls, the
backend's own count, the log of a service it uses, and the libraries that the process had loaded. The plan determines
the expected value of each.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.validate.cases import BASELINE, DTYPE_BYTES
from channel_tools.validate.distributed.options import DistributedPlan, float_error_allowed
from channel_tools.validate.judging import (
    bandwidth_row,
    cases_check,
    exact_check,
    float_check,
    hosts_checks,
    judge_case,
    problems_check,
)
from channel_tools.validate.model import CaseResult, Check, MethodResult, TransportTotals
from channel_tools.validate.ranks import RankCase, RankFacts, RankPath, RankSpeed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from channel_tools.environments.oneccl_affinity import OneCclAffinity
    from channel_tools.ranks.services import ServiceCount

_EVERY_RANK = "on every rank"


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedResult(RankFacts):
    """Everything that one rank wrote.

    ``backend`` is the default group's name, ``carrier`` the class of its backend object and ``carrier_name`` that
    object's own name; ``events`` are the profiler's events of the cases by name, ``counted`` the backend's own count of
    allreduces for them, None if the stack names no counter. ``cpus`` are the hardware threads that the rank is bound
    to, ``thread_cpus`` those of each of its other threads.
    """

    backend: str
    carrier: str
    carrier_name: str
    events: dict[str, int]
    counted: int | None
    libraries: tuple[str, ...]
    cpus: tuple[int, ...]
    thread_cpus: tuple[tuple[int, ...], ...]
    cases: tuple[RankCase, ...]
    speeds: tuple[RankSpeed[RankPath], ...]


def judge_distributed(
    plan: DistributedPlan,
    results: Sequence[DistributedResult],
    counts: Sequence[ServiceCount] = (),
    *,
    prefix: Path,
    launcher: Path,
    affinity: OneCclAffinity | None = None,
    hosts: Sequence[str] = (),
) -> MethodResult:
    """Compare everything; the libraries and, except for a site's MPI, the launcher must be in ``prefix``.

    ``counts`` are those of services that count what they carried, ``affinity`` the cores for the ranks. ``hosts`` are
    those of a scheduler's job, whose launcher may be the site's.
    """
    allowed = float_error_allowed(len(results))
    cases = tuple(
        judge_case(
            case,
            [result.cases[index] for result in results],
            route=plan.options.backend,
            allowed=0.0 if case.measure == "exact" else allowed,
        )
        for index, case in enumerate(plan.cases)
    )
    checks = (
        *hosts_checks(results, hosts),
        *_carrier_checks(plan, results),
        *_service_checks(plan, len(results), counts),
        *_affinity_checks(plan, results, affinity),
        *_library_checks(plan, results, prefix.resolve()),
        *(() if hosts or plan.options.site_libraries else (_launcher_check(prefix.resolve(), launcher),)),
        *_result_checks(cases, allowed),
        *_speed_checks(plan, results),
    )
    return MethodResult(
        checks=checks,
        cases=cases,
        transports=_totals(plan),
        bandwidth=tuple(
            bandwidth_row(speed, [result.speeds[index] for result in results])
            for index, speed in enumerate(plan.speeds)
        ),
        baseline=BASELINE,
        omitted=plan.omitted,
        details=_details(plan, results[0], launcher),
    )


def _carrier_checks(plan: DistributedPlan, results: Sequence[DistributedResult]) -> Iterator[Check]:
    ranks, backend = len(results), plan.options.backend
    sizes = [f"rank {result.rank}: {result.world_size}" for result in results if result.world_size != ranks]
    yield problems_check("all ranks are in one group", sizes, expected=f"{ranks} {_EVERY_RANK}")
    names = [
        f"rank {result.rank}: {result.backend}, carried by {result.carrier_name}"
        for result in results
        if result.backend != backend or result.carrier_name.lower() != backend
    ]
    yield problems_check(
        "the process group is the stack's own", names, expected=f"{backend}, carried by {backend} {_EVERY_RANK}"
    )
    if event := plan.options.event:
        counts = [f"rank {result.rank}: {result.events.get(event, 0)}" for result in results]
        yield problems_check(
            f"the profiler saw every allreduce of the cases as {event}",
            [text for text, result in zip(counts, results, strict=True) if result.events.get(event, 0) != plan.calls],
            expected=f"{plan.calls} {_EVERY_RANK}",
        )
    if counter := plan.options.counter:
        yield problems_check(
            f"{counter} counted every allreduce of the cases as carried",
            [f"rank {result.rank}: {result.counted}" for result in results if result.counted != plan.calls],
            expected=f"{plan.calls} {_EVERY_RANK}",
        )


def _service_checks(plan: DistributedPlan, ranks: int, counts: Sequence[ServiceCount]) -> Iterator[Check]:
    for count in counts:
        expected = plan.messages(count.bytes_per_line)
        lines = [count.lines.get(str(rank), 0) for rank in range(ranks)]
        yield Check(
            name=f"{count.name} carried every allreduce, by its own log",
            passed=min(lines) >= expected,
            found=", ".join(f"rank {rank}: {number}" for rank, number in enumerate(lines)),
            expected=f"at least {expected} messages {_EVERY_RANK}",
        )


def _affinity_checks(
    plan: DistributedPlan, results: Sequence[DistributedResult], affinity: OneCclAffinity | None
) -> Iterator[Check]:
    if affinity is None:
        return
    problems: list[str] = []
    for cores, result in zip(affinity.ranks, results, strict=True):
        # torchrun binds no ranks
        if plan.options.launcher == "mpiexec" and set(result.cpus) != set(cores.compute):
            problems.append(f"rank {result.rank} runs on {result.cpus}, not on {cores.compute}")
        absent = [cpu for cpu in cores.workers if (cpu,) not in result.thread_cpus]
        problems += [f"rank {result.rank} has no worker bound to {cpu}" for cpu in absent]
    workers = affinity.variables()["CCL_WORKER_AFFINITY"]
    yield problems_check(
        "ranks and oneCCL's workers run on the cores that they were given", problems, expected=f"workers on {workers}"
    )


def _library_checks(plan: DistributedPlan, results: Sequence[DistributedResult], prefix: Path) -> Iterator[Check]:
    for name in plan.options.libraries:
        problems = [f"rank {result.rank}: {text}" for result in results for text in _own_library(name, result, prefix)]
        yield problems_check(
            f"{name} is loaded from the environment alone", problems, expected=f"one copy {_EVERY_RANK}"
        )
    for pattern in plan.options.site_libraries:
        problems = [
            f"rank {result.rank}: {text}" for result in results for text in _site_library(pattern, result, prefix)
        ]
        yield problems_check(
            f"{pattern} is the site's and is loaded", problems, expected=f"from outside the environment {_EVERY_RANK}"
        )


def _launcher_check(prefix: Path, launcher: Path) -> Check:
    inside = launcher.is_relative_to(prefix)
    return problems_check(
        "the launcher is the environment's", [] if inside else [str(launcher)], expected=f"in {prefix.name}/bin"
    )


def _own_library(name: str, result: DistributedResult, prefix: Path) -> Iterable[str]:
    """Problems if ``lib/name`` is not loaded, or if another library of that name is as well."""
    own = (prefix / "lib" / name).resolve()
    if str(own) not in result.libraries:
        yield f"{name} is not loaded"
    stems = {file_name.partition(".so")[0] + ".so" for file_name in (name, own.name)}
    for path in result.libraries:
        if path != str(own) and Path(path).name.startswith(tuple(stems)):
            yield f"{path} is loaded, too"


def _site_library(pattern: str, result: DistributedResult, prefix: Path) -> Iterable[str]:
    loaded = [path for path in result.libraries if fnmatch.fnmatchcase(Path(path).name, pattern)]
    if not loaded:
        yield f"{pattern} is not loaded"
    yield from (f"{path} is the environment's" for path in loaded if Path(path).is_relative_to(prefix))


def _result_checks(cases: Sequence[CaseResult], allowed: float) -> Iterator[Check]:
    exact = [case for case in cases if case.error_measure == "exact"]
    floats = [case for case in cases if case.error_measure != "exact"]
    yield exact_check("whole numbers are reduced exactly", exact)
    yield float_check(f"float32 sums are within {allowed:.2g} of float64's", floats, allowed)
    yield cases_check("each case was right on every rank", cases)


def _speed_checks(plan: DistributedPlan, results: Sequence[DistributedResult]) -> Iterator[Check]:
    for route, path in ((plan.options.backend, "default"), (f"the baseline, {BASELINE},", "plain")):
        problems = [
            f"{speed.dtype} of {speed.numel}, rank {result.rank}: {wrong} wrong values"
            for result in results
            for speed in result.speeds
            if (wrong := getattr(speed.paths, path).mismatches)
        ]
        yield problems_check(f"measured calls of {route} gave right results", problems, expected="all")


def _totals(plan: DistributedPlan) -> tuple[TransportTotals, ...]:
    measured = [(speed.dtype, speed.numel * speed.calls, speed.calls) for speed in plan.speeds]
    done = [*((case.dtype, case.numel * case.calls, case.calls) for case in plan.cases), *measured]
    return (_total(plan.options.backend, done), _total(f"{BASELINE} (baseline)", measured))


def _total(name: str, done: Sequence[tuple[str, int, int]]) -> TransportTotals:
    return TransportTotals(
        name=name,
        jobs=sum(calls for _, _, calls in done),
        elements=sum(elements for _, elements, _ in done),
        bytes=sum(elements * DTYPE_BYTES[dtype] for dtype, elements, _ in done),
        counted_by="plan",
    )


def _details(plan: DistributedPlan, first: DistributedResult, launcher: Path) -> dict[str, str]:
    return {
        "python": first.python,
        "torch": first.torch,
        "carrier": first.carrier,
        "launcher": launcher.name,
        **dict(sorted(plan.options.environment.items())),
    }
