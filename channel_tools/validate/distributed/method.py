# SPDX-License-Identifier: BSD-3-Clause
"""The method ``distributed``: a process-group backend under its launcher, on this host's loopback network or on the
hosts of a scheduler's job.

Things that a stack needs of the machine and no channel can provide (a GPU, an RDMA device, the site's own libraries)
are checked before anything runs, so that a missing one is one message and not a rank's traceback.

Checks a run of a process-group backend: pure, from the plan and the ranks' results.

Five facts show what carried the data: the backend object of the default group, the profiler's count of its calls, the
backend's own count, the log of a service it uses, and the libraries that the process had loaded. The plan determines
the expected value of each.

The method ``distributed``: its settings, a process-group backend under one launcher, and the allreduces it runs.
"""

from __future__ import annotations

import fnmatch
import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, StringConstraints
from pydantic.dataclasses import dataclass as model_dataclass

from channel_tools.environments.oneccl_affinity import plan_oneccl_affinity
from channel_tools.ranks.plan import StartSettings, placement_here, plan_here
from channel_tools.ranks.services import ServiceOptions, VariableName, find_program, running_services
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError, ValidationError
from channel_tools.system.kernel import usable_cores
from channel_tools.system.processes import run_command
from channel_tools.validate.cases import (
    BASELINE,
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
from channel_tools.validate.judging import (
    bandwidth_row,
    cases_check,
    exact_check,
    float_check,
    hosts_checks,
    judge_case,
    problems_check,
)
from channel_tools.validate.model import (
    RANKS,
    CaseResult,
    Check,
    MethodResult,
    OmittedCase,
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

    from channel_tools.environments.oneccl_affinity import OneCclAffinity
    from channel_tools.ranks.plan import Placement, RankPlan
    from channel_tools.ranks.services import RunningService, ServiceCount
    from channel_tools.system.yamlfile import YamlValue
    from channel_tools.validate.model import MethodContext

WORKER = WORKERS / "distributed_allreduce.py"
ROOT = Path("/")
_HINT = "validate on a machine that has them; building and installing the stack do not need them"
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


_EVERY_RANK = "on every rank"


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


class DistributedMethod(ValidationMethod):
    """Runs the standard plan of allreduces through one backend and checks results, carrier and libraries."""

    def check(self, *, stack: str, ranks: int, options: Mapping[str, object], hosts: int = 1) -> None:
        """Raise ConfigError for invalid options, UsageError for too many ranks, ValidationError for missing devices.

        There are too many where the stack has a limit, or where each needs a GPU of its own.

        Also raise UsageError for services if there are several hosts: they serve only the host that they run on.
        """
        known = read_distributed_options(stack, options)
        if hosts > 1 and known.services:
            message = f"stack {stack}: its {known.services[0].name} serves ranks of one host, not of {hosts}"
            raise UsageError(message, hint="give --nodes 1, or leave out --on")
        if ranks > known.max_ranks:
            message = f"{counted(ranks, 'rank')}: stack {stack} is validated with at most {known.max_ranks}"
            raise UsageError(message, hint=f"give --ranks 2 to {known.max_ranks}")
        check_devices(stack, known.needs)
        if known.device == "cuda":
            check_gpus(stack, ranks // hosts)

    def start_settings(
        self,
        placement: Placement,
        *,
        stack: str,
        options: Mapping[str, object],
        switch: bool = False,  # noqa: ARG002
    ) -> StartSettings:
        """See ValidationMethod.start_settings; cores are divided among ranks and oneCCL's workers on one machine."""
        known = read_distributed_options(stack, options)
        if known.services and not placement.is_here:
            message = f"stack {stack}: {known.services[0].name} serves the ranks of one machine"
            raise UsageError(message, hint="launch it without --hosts and outside a job of several nodes")
        affinity = _affinity(known, placement.ranks) if placement.is_here else None
        own = {name: value.replace("{prefix}", str(placement.prefix)) for name, value in known.environment.items()}
        # torchrun binds no rank to cores
        binding = affinity.mpiexec_arguments() if affinity is not None and known.launcher == "mpiexec" else ()
        return StartSettings(
            launcher=known.launcher,
            arguments=(*known.launcher_arguments, *binding),
            variables=own if affinity is None else {**affinity.variables(), **own},
            services=known.services,
        )

    def how_to_run(self, options: Mapping[str, YamlValue]) -> Iterator[str]:
        """See ValidationMethod.how_to_run; services can only be started by ``channel_tools launch``."""
        if options.get("services"):
            return
        environment = options.get("environment")
        if isinstance(environment, dict) and environment:
            pairs = (f"{name}={shlex.quote(str(value))}" for name, value in environment.items())
            yield f"export {' '.join(pairs)}   # as it was validated, on one host"
        listed = options.get("imports")
        imports = "".join(f"import {name}; " for name in listed) if isinstance(listed, list) else ""
        yield f'# in train.py: {imports}torch.distributed.init_process_group("{options["backend"]}")'
        is_mpi = options.get("launcher") == "mpiexec"
        yield f"mpiexec -n {RANKS} python train.py" if is_mpi else torchrun_line()
        module, _colon, function = str(options.get("counter") or "").partition(":")
        if function:
            yield last_line(module, f"{function}()")

    def run(self, context: MethodContext) -> MethodResult:
        """See ValidationMethod.run."""
        options = read_distributed_options(context.stack, context.options)
        check_site(context.stack, options.needs, variables=context.variables)
        plan = make_distributed_plan(options)
        affinity = None if context.hosts is not None else _affinity(options, context.ranks)
        with running_services(options.services, context) as services:
            program, ranks = self._start(options, context, services)
            job = RankJob(
                name=program.name,
                plan=ranks,
                ranks=context.ranks,
                document=distributed_document(plan, ranks=context.ranks, is_on_hosts=context.hosts is not None),
                folder=context.folder,
            )
            with context.progress.task(f"allreduces of {counted(context.ranks, 'rank')}", total=None):
                run_job(job, deadline=context.deadline, companions=services)
            results = read_results(job, DistributedResult, hint="run the command again with --keep and see ranks.log")
            counts = [count for service in services if (count := service.stop()) is not None]
        return judge_distributed(
            plan,
            results,
            counts,
            prefix=context.prefix,
            launcher=program,
            affinity=affinity,
            hosts=() if context.hosts is None else context.hosts.names,
        )

    def _start(
        self, options: DistributedOptions, context: MethodContext, services: Sequence[RunningService]
    ) -> tuple[Path, RankPlan]:
        """The program that starts the ranks, and the plan; the stack's variables override those of its services."""
        words = rank_words(WORKER, context.folder)
        if context.hosts is not None:
            own = {name: value.replace("{prefix}", str(context.prefix)) for name, value in options.environment.items()}
            ranks = plan_on_hosts(self, context, context.hosts, words=words, own=own)
            return Path(ranks.launcher), ranks
        placement = placement_here(context.prefix, context.ranks, variables=context.variables)
        settings = self.start_settings(placement, stack=context.stack, options=context.options)
        service_variables = {name: value for service in services for name, value in service.rank_variables.items()}
        variables = {**context.variables, **worker_variables(context.folder), **service_variables, **settings.variables}
        program = context.prefix.resolve() / "bin" / settings.launcher
        if settings.launcher != "torchrun":
            hint = "add an MPI to the stack's install list, or load the site's"
            program = find_program(settings.launcher, context, hint=hint).parent.resolve() / settings.launcher
        placed = replace(placement, variables=variables)
        return program, plan_here(placed, settings, stack=context.stack, words=words, folder=context.folder)


METHOD = DistributedMethod()


def _affinity(options: DistributedOptions, ranks: int) -> OneCclAffinity | None:
    """The cores of ranks on this machine and of oneCCL's workers, for a stack that divides them."""
    return plan_oneccl_affinity(usable_cores(), ranks) if options.affinity == "oneccl" else None


def check_devices(stack: str, needs: Sequence[str], *, root: Path = ROOT) -> None:
    """Raise ValidationError naming the devices that this machine lacks; before anything is installed."""
    _refuse(stack, list(_absent_devices(needs, root)))


def count_gpus(root: Path = ROOT) -> int:
    """The NVIDIA GPUs of this machine that have a driver."""
    return sum(1 for _ in (root / "dev").glob("nvidia[0-9]*"))


def check_gpus(stack: str, ranks: int, *, root: Path = ROOT) -> None:
    """Raise UsageError for more ranks than this machine has NVIDIA GPUs; not where it has none."""
    gpus = count_gpus(root)
    if gpus and ranks > gpus:
        message = f"{counted(ranks, 'rank')}: stack {stack} needs a GPU for each rank, and this machine has {gpus}"
        raise UsageError(message, hint=f"give --ranks {gpus}" if gpus > 1 else "validate on a machine with two GPUs")


def check_site(stack: str, needs: Sequence[str], *, variables: Mapping[str, str]) -> None:
    """Raise ValidationError naming the site's libraries, programs and variables that the environment lacks."""
    _refuse(stack, list(_absent_of_site(needs, variables)))


def _refuse(stack: str, absent: Sequence[str]) -> None:
    if absent:
        raise ValidationError(f"stack {stack}: this machine lacks: {'; '.join(absent)}", hint=_HINT)


def _absent_devices(needs: Sequence[str], root: Path) -> Iterator[str]:
    if "gpu" in needs and not count_gpus(root):
        yield f"an NVIDIA GPU with its driver (no {root / 'dev'}/nvidia0)"
    if "amdgpu" in needs and not (root / "dev/kfd").exists():
        yield f"an AMD GPU with its driver (no {root / 'dev'}/kfd)"
    devices = root / "sys/class/infiniband"
    if "rdma" in needs and not (devices.is_dir() and any(devices.iterdir())):
        yield f"an RDMA device (none in {devices})"


def _absent_of_site(needs: Sequence[str], variables: Mapping[str, str]) -> Iterator[str]:
    for need in needs:
        kind, _, name = need.partition(":")
        if kind == "library" and (reason := _why_not_loaded(name, variables)):
            yield f"the library {name} ({reason})"
        if kind == "program" and shutil.which(name, path=variables.get("PATH", "")) is None:
            yield f"the program {name} (not on the PATH of the activated environment)"
        if kind == "variable" and not variables.get(name):
            yield f"the variable {name} (not set in the activated environment)"


def _why_not_loaded(name: str, variables: Mapping[str, str]) -> str:
    """The loader's error for a library in the activated environment; "" if it loads."""
    result = run_command([sys.executable, "-I", "-S", "-c", _LOAD, name], env=variables, check=False)
    return "" if result.returncode == 0 else result.tail().splitlines()[-1].removeprefix("OSError: ")


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
