# SPDX-License-Identifier: BSD-3-Clause
"""The method ``switchml``: gloo scripts whose allreduces a software switch must have carried.

Switch, controller and ranks use this host's loopback network. The transport's parameters are set for all ranks, since
they determine the number of packets that the switch must have received.

SwitchML's data port is fixed and the switch distinguishes workers by source address, so each run uses its own random
/24 of 127.0.0.0/8, and checks that the switch's port is free there.

On the hosts of a scheduler's job, the ranks run like a user's: those of a host add in shared memory and are one worker,
and the switch, on the first host, uses free ports, since other jobs may run there.

Checks a SwitchML run: pure, from the plan, the ranks' results and the switch's counters.

Three counts have to agree to the element: the plan's (eligible), the plugin's (delegated, on every rank) and the
switch's (added up). Any difference is a failed check, so nothing can fall back silently.

The allreduces of the SwitchML validation, and the packets they must cause.

Every number that a counter is compared with is computed here from the plan by the rules of the wire protocol, before
anything runs.

Runs the software switch of the validated environment and reads its counters.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from channel_tools.ranks.hosts import address_towards
from channel_tools.ranks.launchers import forked_ranks
from channel_tools.ranks.plan import Account, StartSettings, local_plan, placement_here
from channel_tools.ranks.services import ServiceOptions, choose_port
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError, ValidationError
from channel_tools.system.pages import size_in_words
from channel_tools.system.processes import Deadline, Program, end_process_group, running_program, wait_for_any
from channel_tools.validate.cases import (
    BASELINE,
    DTYPE_BYTES,
    FLOAT_ERROR_ALLOWED,
    Case,
    Speed,
    cases_document,
    standard_cases,
    standard_speeds,
)
from channel_tools.validate.judging import (
    bandwidth_row,
    cases_check,
    exact_check,
    float_check,
    hosts_checks,
    judge_case,
    numbers_in_words,
    problems_check,
)
from channel_tools.validate.model import (
    CaseResult,
    Check,
    MethodResult,
    RatesOnThisHost,
    TransportTotals,
    ValidationMethod,
    last_line,
    read_method_options,
    torchrun_line,
)
from channel_tools.validate.ranks import (
    WORKERS,
    RankCase,
    RankFacts,
    RankJob,
    RankPath,
    RankSpeed,
    plan_on_hosts,
    rank_words,
    read_results,
    run_job,
    worker_variables,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from channel_tools.ranks.plan import Placement, RankPlan
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.model import MethodContext

WORKER = WORKERS / "switchml_allreduce.py"
CONTROLLER, HOST_REDUCTION, ENABLE = "SWITCHML_CONTROLLER", "SWITCHML_HOST_REDUCTION", "SWITCHML_ENABLE"
NO_CONTROLLER = "none"
"""Names no host: what the ranks are given where they need the plugin and no switch."""
CONTROLLER_PORT = 50099
"""The controller port of a software switch for a user's script: libswitchml's default."""


_HINT = "install a torch-switchml of this channel's version"


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


PROGRAM = "switchml-switch"
_READY_TIMEOUT_S = 20.0
_CHUNK_BYTES = 4096
T = TypeVar("T")
DATA_PORT = 48864
_ATTEMPTS = 20
_FIRST_WORKER = 10


class SwitchmlMethod(ValidationMethod):
    """Runs the standard plan of allreduces and checks it by the plugin's and the switch's counters.

    On one host the ranks of a user reduce in its memory, which proves nothing of the transport: they are measured after
    that by themselves.
    """

    has_switch = True

    def backend(self, options: Mapping[str, object]) -> str:  # noqa: ARG002
        """See ValidationMethod.backend."""
        return "switchml"

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise UsageError for more workers than a switch serves and for a transport that needs special hardware.

        Raise ConfigError for invalid options.
        """
        workers = ranks if hosts == 1 else hosts
        if not 1 <= workers <= MAX_RANKS:
            noun, option = ("ranks", "--ranks") if hosts == 1 else ("hosts", "--nodes")
            message = f"{workers} {noun}: a SwitchML switch serves 1 to {MAX_RANKS}"
            raise UsageError(message, hint=f"give {option} 2 to {MAX_RANKS}")
        if needs := read_options(stack, options).needs:
            message = f"the stack {stack} cannot be validated over this host's loopback network: it needs {needs}"
            hint = read_options(stack, options).instead
            raise UsageError(
                message, hint=hint or "install it on such a machine, and run switchml-bench there, once per rank"
            )

    def start_settings(
        self,
        placement: Placement,
        *,
        stack: str,
        options: Mapping[str, object],  # noqa: ARG002
        switch: bool = False,
    ) -> StartSettings:
        """See ValidationMethod.start_settings.

        Ranks of one host reduce in its memory and need no switch; on several hosts a software switch is started, unless
        the controller of another is named. Raises UsageError for a transport that has no software switch where one is
        needed, and for variables that contradict ``switch``.
        """
        return replace(_start_settings(placement, stack, switch=switch), account=ACCOUNT)

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:  # noqa: ARG002
        """See ValidationMethod.how_to_run."""
        yield f"{PROGRAM} --address HOST --controller-port {CONTROLLER_PORT} &   # or the controller of your switch"
        yield f"export {CONTROLLER}=HOST:{CONTROLLER_PORT}   # on every host"
        yield torchrun_line()
        yield last_line("torch_switchml", 'stats()["delegated"]')

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        hosts = context.hosts
        plan = make_plan(
            read_options(context.stack, context.options), ranks_per_worker=1 if hosts is None else hosts.ranks_per_host
        )
        network = choose_loopback_network()
        with running_switch(
            prefix=context.prefix,
            variables=context.variables,
            address=network.switch if hosts is None else hosts.address,
            data_port=DATA_PORT if hosts is None else 0,
            folder=context.folder,
            deadline=context.deadline,
        ) as switch:
            context.progress.note(
                f"the switch serves at {switch.ready.data}, its controller at {switch.ready.controller}"
            )
            job = RankJob(
                name="the ranks' launcher",
                plan=self._plan_of_ranks(context, plan, switch.ready.controller),
                ranks=context.ranks,
                document=ranks_document(
                    plan,
                    local_addresses=() if hosts is not None else network.workers(context.ranks),
                    is_on_hosts=hosts is not None,
                ),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')}", total=None):
                run_job(job, deadline=context.deadline, companions=[switch])
            results = read_results(job, RankResult, hint=_HINT)
            stats = switch.stop()
        names = () if hosts is None else hosts.names
        here = None if hosts is not None or context.ranks == 1 else (plan.speeds_here, self._run_here(context, plan))
        return judge(plan, results, stats, prefix=context.prefix, hosts=names, here=here)

    def _run_here(self, context: MethodContext, plan: SwitchmlPlan) -> Sequence[RankResult]:
        """Measure as users run it on this host, who set nothing; what the ranks write."""
        folder = context.folder / "here"
        folder.mkdir()
        job = RankJob(
            name="the launcher of ranks with nothing set",
            plan=self._plan_on_this_host(context, folder, {}, trains=False),
            ranks=context.ranks,
            document=ranks_document(replace(plan, cases=(), speeds=plan.speeds_here)),
            folder=folder,
        )
        with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')} with nothing set", total=None):
            run_job(job, deadline=context.deadline)
        return read_results(job, RankResult, hint=_HINT)

    def _plan_of_ranks(self, context: MethodContext, plan: SwitchmlPlan, controller: str) -> RankPlan:
        own = {
            CONTROLLER: controller,
            "SWITCHML_NUM_THREADS": str(plan.options.num_threads),
            "SWITCHML_PACKET_NUMEL": str(plan.options.packet_numel),
            "SWITCHML_MAX_OUTSTANDING_PACKETS": str(plan.options.max_outstanding_packets),
            "SWITCHML_CONNECT_TIMEOUT_MS": str(round(plan.options.connect_timeout_s * 1000)),
            "SWITCHML_JOB_TIMEOUT_MS": str(round(plan.options.job_timeout_s * 1000)),
        }
        if context.hosts is not None:
            own["SWITCHML_WORKER_PORT"] = str(choose_port())
            return plan_on_hosts(self, context, context.hosts, words=rank_words(WORKER, context.folder), own=own)
        # each rank is a worker: ranks of a single host would otherwise not use the switch
        return self._plan_on_this_host(context, context.folder, {HOST_REDUCTION: "off", **own}, trains=plan.trains)

    def _plan_on_this_host(
        self, context: MethodContext, folder: Path, own: Mapping[str, str], *, trains: bool
    ) -> RankPlan:
        variables = {**context.variables, **worker_variables(folder), **own}
        placement = placement_here(context.prefix, context.ranks, variables=variables)
        commands = forked_ranks(placement.start(rank_words(WORKER, folder)), trains=trains)
        return local_plan(placement, commands, stack=context.stack, launcher=commands[0].words[1], folder=folder)


METHOD = SwitchmlMethod()


def summary(report: Mapping[str, Any] | None) -> str:
    """What carried a user's script, from the plugin's report on rank 0; None if the plugin has left none."""
    if report is None:
        return f"gloo carried this job, or nothing had to be: SwitchML opened no session on rank 0 ({ENABLE}=0?)"
    jobs = sum(row["jobs"] for row in report["delegated"].values())
    size = size_in_words(sum(row["bytes"] for row in report["delegated"].values()))
    left = {reason.replace("_", " "): count for reason, count in report["fallbacks"].items() if count}
    rest = f"; gloo carried {counted(sum(left.values()), 'allreduce')} ({numbers_in_words(left)})" if left else ""
    if report["failure"]:
        rest += f"; SwitchML's session failed: {report['failure']}"
    if not jobs:
        return f"SwitchML carried nothing{rest}"
    transport = (report["library"] or {}).get("transport", "")
    if report["host"] is not None and report["host"]["workers"] == 0:
        carrier = "the memory of this host carried"
    elif transport == "dummy":
        carrier = "nothing carried, the transport dummy multiplied"
    else:
        carrier = f"SwitchML ({transport}, controller {report['controller']}) carried"
    return f"{carrier} {counted(jobs, 'allreduce')} of rank 0, {size}{rest}"


ACCOUNT = Account(variable="SWITCHML_STATS_FILE", summary=summary)


def _start_settings(placement: Placement, stack: str, *, switch: bool) -> StartSettings:
    if switch:
        _refuse_contradictions(placement)
        return _with_switch(placement, stack)
    if _variable(placement, CONTROLLER):
        return StartSettings()
    if _transport(placement) == "dummy":
        return StartSettings(variables={CONTROLLER: NO_CONTROLLER})
    if not _is_one_host(placement):
        return _with_switch(placement, stack)
    if _is_off(_variable(placement, HOST_REDUCTION)):
        message = f"{HOST_REDUCTION} is off: each rank would go through a switch, and {CONTROLLER} names none"
        raise UsageError(message, hint=f"unset {HOST_REDUCTION}, or try a software switch: --switch")
    # a group of one rank would open a session, to reduce nothing
    return StartSettings(variables={} if placement.ranks == 1 else {CONTROLLER: NO_CONTROLLER})


def _variable(placement: Placement, name: str) -> str:
    """The variable as the user, or else the activation of the environment, has set it; "" if neither has."""
    return placement.environ.get(name) or placement.variables.get(name, "")


def _is_one_host(placement: Placement) -> bool:
    return len(placement.hosts) == 1 or all(host.is_local for host in placement.hosts)


def _is_off(value: str) -> bool:
    """Whether the plugin reads the value of a switch as off (torch_switchml/settings.py)."""
    return value.strip().lower() in {"0", "off", "false", "no"}


def _transport(placement: Placement) -> str:
    return placement.installed.get("libswitchml", " udp_").partition(" ")[2].partition("_h")[0]


def _refuse_contradictions(placement: Placement) -> None:
    """Raise UsageError for a variable with which the ranks would not use the switch that is started for them."""
    reduction = _variable(placement, HOST_REDUCTION)
    for name, contradicts, consequence in (
        (CONTROLLER, bool(_variable(placement, CONTROLLER)), "names another switch"),
        (HOST_REDUCTION, bool(reduction) and not _is_off(reduction), "keeps the ranks of a host from using one"),
        (ENABLE, _is_off(_variable(placement, ENABLE)), "switches the plugin off"),
    ):
        if contradicts:
            message = f"--switch starts a software switch, but {name}={_variable(placement, name)} {consequence}"
            raise UsageError(message, hint=f"unset {name}, or leave --switch out")


def _with_switch(placement: Placement, stack: str) -> StartSettings:
    """A software switch beside the ranks, which learn its controller. Raises UsageError if the transport has none."""
    if (transport := _transport(placement)) != "udp":
        message = f"stack {stack}: no software switch can be started for libswitchml's {transport}"
        raise UsageError(message, hint=f"set {CONTROLLER} to host:port of your switch's controller")
    remote = [host for host in placement.hosts if not host.is_local]
    address = address_towards(remote[0].address) if remote else choose_loopback_network().switch
    variables = {CONTROLLER: f"{address}:{CONTROLLER_PORT}"}
    if _is_one_host(placement):  # its ranks would reduce in its memory and bypass the switch
        variables[HOST_REDUCTION] = "off"
    if not remote:
        variables["SWITCHML_WORKER_PORT"] = str(choose_port())
    service = ServiceOptions(
        command=(PROGRAM, "--address", address, "--controller-port", str(CONTROLLER_PORT)),
        ready_line=re.compile(r'"event": *"ready"'),
    )
    return StartSettings(variables=variables, services=(service,))


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Increases of the plugin's counters: jobs and elements by dtype, fallbacks by reason, without zeros."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCase(RankCase):
    """A case of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPath(RankPath):
    """A measurement of one rank, with what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginLibrary:
    """The transport library that the plugin loaded."""

    path: str
    version: str
    transport: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShare:
    """Ranks of one host that reduce together; ``workers`` is 0 if no others take part: all is done in its memory."""

    workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegatedTotals:
    """Completed jobs of one dtype."""

    jobs: int
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStats:
    """The plugin's own report at the end of a rank."""

    active: bool
    version: str
    library: PluginLibrary | None
    delegated: dict[str, DelegatedTotals]
    fallbacks: dict[str, int]
    failed_jobs: int
    host: HostShare | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult(RankFacts):
    """Everything that one rank wrote."""

    cases: tuple[CountedCase, ...]
    speeds: tuple[RankSpeed[CountedPath], ...]
    stats: PluginStats


def judge(
    plan: SwitchmlPlan,
    results: Sequence[RankResult],
    switch: SwitchStats,
    *,
    prefix: Path,
    hosts: Sequence[str] = (),
    here: tuple[Sequence[Speed], Sequence[RankResult]] | None = None,
) -> MethodResult:
    """Compare all counts; the plugin's library must be in ``prefix``, ``hosts`` are those of a job.

    ``here`` is what was measured as users run it on this host, and what its ranks wrote.
    """
    cases = tuple(
        _judge_case(case, [result.cases[index] for result in results], allowed=plan.float_error_allowed)
        for index, case in enumerate(plan.cases)
    )
    speeds = [(speed, [result.speeds[index] for result in results]) for index, speed in enumerate(plan.speeds)]
    checks = (
        *hosts_checks(results, hosts),
        _library_check(results, prefix),
        *_result_checks(cases, allowed=plan.float_error_allowed),
        *_plugin_checks(plan, results, cases),
        *_speed_checks(speeds),
        *_switch_checks(plan, len(results), switch),
        *(() if here is None else (_here_check(*here),)),
    )
    if hosts:
        carrier = f"the ranks of a host ({plan.ranks_per_worker}) in its memory, the hosts through a software switch"
    else:
        carrier = "each rank through a software switch, not in this host's memory, as ranks of one host reduce"
    first = results[0]
    details = {"python": first.python, "torch": first.torch, "torch_switchml": first.stats.version}
    if first.stats.library:
        details["libswitchml"] = f"{first.stats.library.transport} {first.stats.library.version}"
    return MethodResult(
        checks=checks,
        cases=cases,
        transports=_totals(plan, results, switch),
        bandwidth=tuple(bandwidth_row(speed, ranks) for speed, ranks in speeds),
        baseline=BASELINE,
        details=details,
        remarks=(f"Measured: {carrier}, a process that shares the ranks' cores; a switch in hardware is faster.",),
        on_this_host=None if here is None else _rates_here(*here),
    )


MEMORY = "this host's memory"
_MIXED = "several"
"""Some calls of a rank were carried by one, some by another, or by a switch."""


def _here_check(speeds: Sequence[Speed], results: Sequence[RankResult]) -> Check:
    """The check that ranks with nothing set are all carried by the same, with right results.

    That this is the host's memory is not asked: where a container refuses it, gloo is right.
    """
    carriers: dict[str, list[int]] = {MEMORY: [], BASELINE: [], _MIXED: []}
    wrong = 0
    for number, result in enumerate(results):
        carriers[_carrier(speeds, result)].append(number)
        wrong += result.stats.failed_jobs
        wrong += sum(path.mismatches for row in result.speeds for path in (row.paths.default, row.paths.plain))
    found = [f"{carrier} on rank {', '.join(map(str, ranks))}" for carrier, ranks in carriers.items() if ranks]
    is_one = len(found) == 1 and not carriers[_MIXED]
    return Check(
        name="ranks of this host with nothing set are right, and carried by one",
        passed=is_one and not wrong,
        found=(_carrier(speeds, results[0]) if is_one else "; ".join(found)) + (f", {wrong} wrong" if wrong else ""),
        expected=f"{MEMORY} or {BASELINE} on every rank, 0 wrong",
    )


def _carrier(speeds: Sequence[Speed], result: RankResult) -> str:
    """What carried all measured allreduces of a rank."""
    jobs = [row.paths.default.counts.jobs for row in result.speeds]
    if not any(jobs):
        return BASELINE
    all_delegated = jobs == [{speed.dtype: speed.calls} for speed in speeds]
    return MEMORY if all_delegated and result.stats.host is not None and result.stats.host.workers == 0 else _MIXED


def _rates_here(speeds: Sequence[Speed], results: Sequence[RankResult]) -> RatesOnThisHost:
    rows = enumerate(speeds)
    return RatesOnThisHost(
        carrier=_carrier(speeds, results[0]),
        bandwidth=tuple(bandwidth_row(speed, [result.speeds[number] for result in results]) for number, speed in rows),
    )


def _judge_case(case: Case, ranks: Sequence[CountedCase], *, allowed: float) -> CaseResult:
    problems: list[str] = []
    for number, rank in enumerate(ranks):
        wrong_routes = _route_problems(
            rank.counts, dtype=case.dtype, numel=case.numel, calls=case.calls, reason=case.reason
        )
        problems += (f"rank {number}: {problem}" for problem in wrong_routes)
    return judge_case(
        case,
        ranks,
        route=TRANSPORT if case.is_delegated else BASELINE,
        allowed=0.0 if case.measure == "exact" else allowed,
        problems=problems,
    )


def _route_problems(counts: RankCounts, *, dtype: str, numel: int, calls: int, reason: str) -> Iterable[str]:
    """How the plugin's counters differ from what ``calls`` of this kind must add to them."""
    jobs = {} if reason else {WIRE_DTYPES[dtype]: calls}
    elements = {} if reason or not numel else {WIRE_DTYPES[dtype]: calls * numel}
    fallbacks = {reason: calls} if reason else {}
    for quantity, found, expected in (
        ("delegated jobs", counts.jobs, jobs),
        ("delegated elements", counts.elements, elements),
        ("fallbacks", counts.fallbacks, fallbacks),
    ):
        if found != expected:
            yield f"{quantity}: {numbers_in_words(found)}, expected {numbers_in_words(expected)}"
    if counts.failed_jobs:
        yield f"{counts.failed_jobs} failed jobs"


def _library_check(results: Sequence[RankResult], prefix: Path) -> Check:
    libraries = [result.stats.library if result.stats.active else None for result in results]
    outside = {
        library.path
        for library in libraries
        if library and not Path(library.path).resolve().is_relative_to(prefix.resolve())
    }
    absent = [rank for rank, library in enumerate(libraries) if library is None]
    problem = "; ".join(
        [f"not active on rank {', '.join(map(str, absent))}"] * bool(absent)
        + [f"loaded {path}" for path in sorted(outside)]
    )
    return Check(
        name="the plugin is active, with the environment's own library",
        passed=not absent and not outside,
        found=problem or "on every rank",
        expected="on every rank",
    )


def _result_checks(cases: Sequence[CaseResult], *, allowed: float) -> Iterable[Check]:
    carried = [case for case in cases if case.route == TRANSPORT]
    yield exact_check("whole numbers are summed exactly", [case for case in carried if case.error_measure == "exact"])
    floats = [case for case in carried if case.error_measure != "exact"]
    within = f"{allowed:.2g}".replace("e-0", "e-")
    yield float_check(f"float32 sums are within {within} of float64's", floats, allowed)
    yield exact_check(f"what {BASELINE} carried is exact", [case for case in cases if case.route == BASELINE])


def _plugin_checks(plan: SwitchmlPlan, results: Sequence[RankResult], cases: Sequence[CaseResult]) -> Iterable[Check]:
    eligible: Counter[str] = Counter()
    for dtype, numel, calls in plan.delegated_jobs():
        eligible[dtype] += numel * calls
    delegated = [{dtype: row.elements for dtype, row in result.stats.delegated.items()} for result in results]
    yield _same_on_all("every eligible element was delegated", delegated, eligible)
    expected_fallbacks: Counter[str] = Counter()
    for case in plan.cases:
        if case.reason:
            expected_fallbacks[case.reason] += case.calls
    for speed in plan.speeds:
        expected_fallbacks["group"] += speed.calls
    fallbacks = [result.stats.fallbacks for result in results]
    yield _same_on_all("only what is not eligible fell back", fallbacks, expected_fallbacks)
    yield cases_check("each case was right and took its route on every rank", cases)
    failed = sum(result.stats.failed_jobs for result in results)
    yield Check(name="no job failed", passed=failed == 0, found=str(failed), expected="0")


def _same_on_all(name: str, per_rank: Sequence[Mapping[str, int]], expected: Mapping[str, int]) -> Check:
    cleaned = [{key: value for key, value in totals.items() if value} for totals in per_rank]
    wrong = [
        f"rank {rank}: {numbers_in_words(totals)}" for rank, totals in enumerate(cleaned) if totals != dict(expected)
    ]
    return Check(
        name=name,
        passed=not wrong,
        found="; ".join(wrong) or f"{numbers_in_words(expected)} on every rank",
        expected=f"{numbers_in_words(expected)} on every rank",
    )


def _speed_checks(speeds: Sequence[tuple[Speed, Sequence[RankSpeed[CountedPath]]]]) -> Iterable[Check]:
    yield _path_check(
        "measured calls went through SwitchML",
        [(speed, [rank.paths.default for rank in ranks]) for speed, ranks in speeds],
    )
    yield _path_check(
        f"measured {BASELINE} calls were not delegated",
        [(speed, [rank.paths.plain for rank in ranks]) for speed, ranks in speeds],
        reason="group",
    )


def _path_check(name: str, paths: Sequence[tuple[Speed, Sequence[CountedPath]]], *, reason: str = "") -> Check:
    problems: list[str] = []
    for speed, ranks in paths:
        for number, path in enumerate(ranks):
            wrong_routes = _route_problems(
                path.counts, dtype=speed.dtype, numel=speed.numel, calls=speed.calls, reason=reason
            )
            wrong = [f"{path.mismatches} wrong values"] if path.mismatches else []
            problems += (f"{speed.dtype} of {speed.numel}, rank {number}: {text}" for text in (*wrong_routes, *wrong))
    return problems_check(name, problems, expected="all, with right results")


def _switch_checks(plan: SwitchmlPlan, ranks: int, switch: SwitchStats) -> Iterable[Check]:
    slots = expected_slots(plan, ranks)
    dropped = switch.packets_dropped
    worker = "rank" if plan.ranks_per_worker == 1 else "host"
    for name, found, expected in (
        ("the switch saw one session", switch.sessions_opened, 1),
        (f"the switch saw every {worker}", switch.num_workers, ranks // plan.ranks_per_worker),
        ("the switch completed every slot of every job", switch.slots_completed, slots),
        ("the switch added up every packet's elements", switch.elements_aggregated, slots * plan.options.packet_numel),
        ("the switch saw only well-formed packets", dropped.malformed + dropped.unknown_worker + dropped.bad_slot, 0),
    ):
        yield Check(name=name, passed=found == expected, found=str(found), expected=str(expected))


def _totals(plan: SwitchmlPlan, results: Sequence[RankResult], switch: SwitchStats) -> tuple[TransportTotals, ...]:
    first = results[0]
    delegated = first.stats.delegated.values()
    seen_by_gloo: list[tuple[Case | Speed, RankCounts]] = [
        *((case, result.counts) for case, result in zip(plan.cases, first.cases, strict=True)),
        *((speed, result.paths.plain.counts) for speed, result in zip(plan.speeds, first.speeds, strict=True)),
    ]
    gloo = [(allreduce, allreduce.numel * sum(counts.fallbacks.values())) for allreduce, counts in seen_by_gloo]
    return (
        TransportTotals(
            name=TRANSPORT,
            jobs=sum(row.jobs for row in delegated),
            elements=sum(row.elements for row in delegated),
            bytes=sum(row.bytes for row in delegated),
            counted_by="plugin",
        ),
        TransportTotals(
            name=TRANSPORT,
            jobs=None,
            elements=switch.elements_aggregated,
            bytes=switch.elements_aggregated * ELEMENT_BYTES,
            counted_by="switch",
        ),
        TransportTotals(
            name=BASELINE,
            jobs=sum(first.stats.fallbacks.values()),
            elements=sum(elements for _, elements in gloo),
            bytes=sum(elements * DTYPE_BYTES[allreduce.dtype] for allreduce, elements in gloo),
            counted_by="plugin",
        ),
    )


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyLine:
    """The line that the switch prints when it is ready."""

    event: str
    controller: str
    data: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedPackets:
    """Packets that the switch dropped, by cause.

    ``stale`` arrived too late, after retransmission; ``injected`` are those that the switch was told to lose.
    """

    malformed: int
    unknown_worker: int
    bad_slot: int
    stale: int
    injected: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchStats:
    """The switch's counters, as in its statistics file."""

    sessions_opened: int
    num_workers: int
    packets_received: int
    packets_dropped: DroppedPackets
    slots_completed: int
    elements_aggregated: int
    results_sent: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningSwitch:
    """A running switch."""

    program: Program
    ready: ReadyLine
    stats_file: Path

    def failure(self) -> ValidationError:
        """The error for a switch that ended by itself."""
        return ValidationError(
            f"the switch ended while the ranks ran: {self.program.end_in_words()}\n{self.program.tail()}",
            hint=f"the switch's log is {self.program.log}",
        )

    def stop(self) -> SwitchStats:
        """End the switch normally and return its last counters."""
        end_process_group(self.program.process)
        return _read(SwitchStats, self.stats_file.read_bytes() if self.stats_file.exists() else b"", self.program)


@contextlib.contextmanager
def running_switch(
    *,
    prefix: Path,
    variables: Mapping[str, str],
    address: str,
    folder: Path,
    deadline: Deadline,
    controller_port: int = 0,
    data_port: int = DATA_PORT,
) -> Iterator[RunningSwitch]:
    """The environment's switch on ``address``, its controller on ``controller_port`` there (0: any free one).

    ``data_port`` 0 also means any free one; workers learn it when they open a session. The switch is ended at the end
    of the block. Raises ValidationError, with its output, if it does not exist, ends, or is not ready in time.
    """
    program_file = prefix / "bin" / PROGRAM
    if not program_file.is_file():
        message = f"{program_file}: the environment has no software switch"
        raise ValidationError(message, hint="add switchml-switch to the stack's install list")
    stats_file = folder / "switch-stats.json"
    command: list[str | Path] = [
        program_file,
        "--address",
        address,
        "--controller-port",
        str(controller_port),
        "--port",
        str(data_port),
        "--stats-file",
        stats_file,
    ]
    with running_program(
        PROGRAM, command, env=variables, cwd=folder, log=folder / "switch.log", stdout=subprocess.PIPE
    ) as program:
        line = _first_line(program, deadline.capped(_READY_TIMEOUT_S))
        yield RunningSwitch(program=program, ready=_read(ReadyLine, line, program), stats_file=stats_file)


def _first_line(program: Program, deadline: Deadline) -> bytes:
    stdout = program.process.stdout
    if stdout is None:
        raise ValueError(f"{program.name}: started without a pipe")
    received = b""
    while b"\n" not in received:
        if not wait_for_any([stdout.fileno()], deadline):
            message = f"{program.name}: not ready within {deadline.limit_s:g} s\n{program.tail()}"
            raise ValidationError(message, hint=f"its log is {program.log}")
        chunk = os.read(stdout.fileno(), _CHUNK_BYTES)
        if not chunk:
            message = f"{program.name}: ended before it was ready: {program.end_in_words()}\n{program.tail()}"
            raise ValidationError(message, hint=f"its log is {program.log}")
        received += chunk
    return received.partition(b"\n")[0]


def _read(kind: type[T], text: bytes, program: Program) -> T:
    try:
        return TypeAdapter(kind).validate_json(text)
    except PydanticValidationError as err:
        fault = err.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "the whole"
        beginning = text[:200].decode(errors="replace")
        message = f"{program.name}: expected a {kind.__name__} in JSON; {where}: {fault['msg']}; found: {beginning}"
        raise ValidationError(message, hint="install a switchml-switch of this channel's version") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopbackNetwork:
    """A /24 of the loopback network."""

    base: str
    """Its first three numbers, ``127.77.3``."""

    @property
    def switch(self) -> str:
        """The address of the switch."""
        return f"{self.base}.1"

    def workers(self, count: int) -> tuple[str, ...]:
        """One source address per rank."""
        return tuple(f"{self.base}.{_FIRST_WORKER + rank}" for rank in range(count))


def choose_loopback_network(port: int = DATA_PORT) -> LoopbackNetwork:
    """A network whose switch address has the UDP ``port`` free. Raises ValidationError if none was found."""
    source = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        network = LoopbackNetwork(base=f"127.{source.randrange(1, 255)}.{source.randrange(256)}")
        if _is_free(network.switch, port):
            return network
    message = f"no loopback address with UDP port {port} free was found in {_ATTEMPTS} attempts"
    raise ValidationError(message, hint="end what listens on that port on all addresses, then run the command again")


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
