# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the SwitchML validation: a plain gloo script that also looks who carried its allreduces.

Runs under torchrun in the environment that is being validated, so it uses torch, the standard library and, to read the
counters, torch_switchml; nothing of channel_tools. It decides nothing: it writes what it saw to ``rank-N.json`` and
leaves the judgement to its starter. Expected values are made again chunk by chunk, so that a rank's memory stays
within two tensors.

Usage: switchml_allreduce.py PLAN.json (see channel_tools.validate.switchml_plan).
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import json
import os
import platform
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

# A rank ends with the launcher that started it, also while it imports torch, which takes seconds.
_PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

CHUNK = 1 << 20  # elements made and compared at a time; a multiple of every packet size
INT32_LIMIT = 2**31
SPREAD_EXPONENTS = 41


@dataclass(frozen=True, kw_only=True)
class Case:
    """As channel_tools.validate.switchml_plan.Case, less what only the judge needs."""

    index: int
    name: str
    dtype: str
    op: str
    numel: int
    calls: int
    data: str
    group: str
    is_async: bool
    is_strided: bool


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One size to measure."""

    dtype: str
    numel: int
    warmups: int
    repetitions: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What all ranks do."""

    folder: Path
    seed: int
    unit: int
    group_timeout_s: float
    local_addresses: list[str]
    ddp_layers: list[int]
    cases: list[Case]
    speeds: list[Speed]


@dataclass
class Counts:
    """The plugin's counters: jobs and elements by dtype, fallbacks by reason."""

    jobs: dict[str, int] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    failed_jobs: int = 0

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``, zeros left out."""
        return Counts(
            jobs=_grown(self.jobs, before.jobs),
            elements=_grown(self.elements, before.elements),
            fallbacks=_grown(self.fallbacks, before.fallbacks),
            failed_jobs=self.failed_jobs - before.failed_jobs,
        )

    def add(self, other: Counts) -> None:
        """Add ``other`` to these."""
        for mine, others in (
            (self.jobs, other.jobs),
            (self.elements, other.elements),
            (self.fallbacks, other.fallbacks),
        ):
            for name, value in others.items():
                mine[name] = mine.get(name, 0) + value
        self.failed_jobs += other.failed_jobs


def _grown(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    return {name: value for name, value in grown.items() if value != 0}


def read_stats() -> dict[str, object]:
    """The plugin's own report of this process."""
    import torch_switchml  # noqa: PLC0415  (a clear ImportError of this rank, not of the whole script)

    stats: dict[str, object] = torch_switchml.stats()
    return stats


def read_counts() -> Counts:
    """The counters of the plugin's report."""
    stats = json.loads(json.dumps(read_stats()))
    return Counts(
        jobs={dtype: row["jobs"] for dtype, row in stats["delegated"].items()},
        elements={dtype: row["elements"] for dtype, row in stats["delegated"].items()},
        fallbacks=stats["fallbacks"],
        failed_jobs=stats["failed_jobs"],
    )


@dataclass
class Difference:
    """How far results are from what is right: the largest error, and how many values are plainly wrong."""

    max_error: float = 0.0
    mismatches: int = 0

    def note_errors(self, errors: torch.Tensor) -> None:
        """Take in relative errors; those that are no numbers count as mismatches."""
        finite = torch.isfinite(errors)
        self.mismatches += int((~finite).sum())
        if bool(finite.any()):
            self.max_error = max(self.max_error, float(errors[finite].max()))


@dataclass(frozen=True, kw_only=True)
class Values:
    """The input of any rank for one call of a case: any rank can make any rank's."""

    plan: Plan
    case: Case
    call: int
    world: int

    def of_rank(self, rank: int, start: int) -> torch.Tensor:
        """The elements from ``start`` to the chunk's end."""
        count = min(CHUNK, self.case.numel - start)
        seed = self.plan.seed
        for part in (self.case.index, self.call, rank, start // CHUNK):
            seed = (seed * 1_000_003 + part) % 2**62
        generator = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, self.case.dtype)
        match self.case.data:
            case "positive":
                values = torch.rand(count, generator=generator) + 0.5
            case "normal":
                values = torch.randn(count, generator=generator)
            case "spread":
                values = torch.randn(count, generator=generator) * self._magnitudes(start, count)
            case "nonfinite":
                values = self._with_nonfinite(torch.randn(count, generator=generator), rank, start)
            case "range":
                limit = (INT32_LIMIT - 1) // self.world
                values = torch.randint(-limit, limit + 1, (count,), generator=generator, dtype=dtype)
            case "full":
                values = torch.randint(-INT32_LIMIT, INT32_LIMIT, (count,), generator=generator, dtype=dtype)
            case "small":
                values = torch.randint(-8, 9, (count,), generator=generator).to(dtype)
            case _:
                raise ValueError(f"case {self.case.name}: unknown data {self.case.data!r}")
        return values

    def tensor(self, rank: int) -> torch.Tensor:
        """The whole input of ``rank``."""
        dtype = getattr(torch, self.case.dtype)
        step = 2 if self.case.is_strided else 1
        tensor = torch.empty(step * self.case.numel, dtype=dtype)[::step]
        for start in self.starts():
            tensor[start : start + CHUNK] = self.of_rank(rank, start)
        return tensor

    def starts(self) -> Iterator[int]:
        """Where the chunks begin."""
        return iter(range(0, self.case.numel, CHUNK))

    def _magnitudes(self, start: int, count: int) -> torch.Tensor:
        units = torch.arange(start, start + count) // self.plan.unit
        return torch.pow(2.0, ((units * 7) % SPREAD_EXPONENTS - SPREAD_EXPONENTS // 2).float())

    def _with_nonfinite(self, values: torch.Tensor, rank: int, start: int) -> torch.Tensor:
        unit = self.plan.unit
        for position, value, owner in ((unit + 3, torch.inf, 0), (3 * unit + 1, torch.nan, self.world - 1)):
            if rank == owner and start <= position < start + len(values):
                values[position - start] = value
        return values


def compare(result: torch.Tensor, values: Values) -> Difference:
    """Compare a result with the same reduction in float64 or int64."""
    difference = Difference()
    for start in values.starts():
        found = result[start : start + CHUNK]
        inputs = (values.of_rank(rank, start) for rank in range(values.world))
        if values.case.data in {"positive", "normal", "spread", "nonfinite"}:
            _compare_floats(difference, found.double(), [one.double() for one in inputs], values)
        else:
            _compare_exactly(difference, found, list(inputs), values.case.op)
    return difference


def _compare_floats(difference: Difference, found: torch.Tensor, inputs: list[torch.Tensor], values: Values) -> None:
    exact = torch.stack(inputs).sum(0)
    if values.case.data == "positive":
        difference.note_errors((found - exact).abs() / exact)
        return
    unit = values.plan.unit
    sizes = torch.stack(inputs).abs().sum(0)
    padded = torch.nn.functional.pad(sizes, (0, -len(sizes) % unit)).view(-1, unit)
    scales = padded.amax(1).repeat_interleave(unit)[: len(sizes)]
    lost = ~torch.isfinite(sizes) & torch.isfinite(found)
    difference.mismatches += int(lost.sum())
    usable = torch.isfinite(scales)
    difference.note_errors(((found - exact).abs() / scales)[usable])


def _compare_exactly(difference: Difference, found: torch.Tensor, inputs: list[torch.Tensor], op: str) -> None:
    wide = torch.int64 if not found.is_floating_point() else torch.float64
    stacked = torch.stack(inputs).to(wide)
    expected = {"SUM": stacked.sum(0), "MAX": stacked.amax(0), "MIN": stacked.amin(0)}[op].to(found.dtype)
    difference.mismatches += int((found != expected).sum())


class Rank:
    """The run of one rank: its groups and where it writes."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rank = dist.get_rank()
        self.world = dist.get_world_size()
        self.plain = dist.new_group(backend="gloo")

    def run(self) -> dict[str, object]:
        """All cases, then all measurements."""
        cases = [self._run_case(case) for case in self.plan.cases]
        speeds = [self._measure(speed) for speed in self.plan.speeds]
        return {"cases": cases, "speeds": speeds}

    def _run_case(self, case: Case) -> dict[str, object]:
        self._say(case.name)
        before, started = read_counts(), time.perf_counter()
        difference = self._train(case) if case.data == "ddp" else self._reduce(case)
        return {
            "name": case.name,
            "seconds": time.perf_counter() - started,
            "max_error": difference.max_error,
            "mismatches": difference.mismatches,
            "counts": vars(read_counts().since(before)),
        }

    def _reduce(self, case: Case) -> Difference:
        group = self.plain if case.group == "second" else None
        op = getattr(dist.ReduceOp, case.op)
        inputs = [Values(plan=self.plan, case=case, call=call, world=self.world) for call in range(case.calls)]
        tensors = [values.tensor(self.rank) for values in inputs]
        works = [dist.all_reduce(tensor, op=op, group=group, async_op=case.is_async) for tensor in tensors]
        for work in works:
            if work is not None:
                work.wait()
        difference = Difference()
        for values, tensor in zip(inputs, tensors, strict=True):
            one = compare(tensor, values)
            difference.max_error = max(difference.max_error, one.max_error)
            difference.mismatches += one.mismatches
        return difference

    def _train(self, case: Case) -> Difference:
        """DistributedDataParallel's gradients beside the mean of all ranks' own."""
        torch.manual_seed(self.plan.seed)
        sizes = self.plan.ddp_layers
        model = torch.nn.Sequential(*(torch.nn.Linear(*pair) for pair in itertools.pairwise(sizes)))
        parallel = DistributedDataParallel(model)
        difference = Difference()
        for step in range(case.calls):
            expected = self._mean_gradients(copy.deepcopy(model), step)
            parallel.zero_grad()
            self._backward(parallel, self.rank, step)
            found = torch.cat([one.grad.flatten() for one in model.parameters()]).double()
            difference.note_errors((found - expected).abs() / expected.abs().max())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
        return difference

    def _mean_gradients(self, model: torch.nn.Module, step: int) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for rank in range(self.world):
            model.zero_grad()
            self._backward(model, rank, step)
            total = total + torch.cat([one.grad.flatten() for one in model.parameters()]).double()
        return total / self.world

    def _backward(self, model: torch.nn.Module, rank: int, step: int) -> None:
        generator = torch.Generator().manual_seed(self.plan.seed + 1000 * step + rank)
        model(torch.randn(16, self.plan.ddp_layers[0], generator=generator)).square().mean().backward()

    def _measure(self, speed: Speed) -> dict[str, object]:
        self._say(f"bandwidth {speed.dtype} {speed.numel}")
        tensor = torch.empty(speed.numel, dtype=getattr(torch, speed.dtype))
        paths = {"default": None, "plain": self.plain}
        seconds: dict[str, list[float]] = {name: [] for name in paths}
        counts = {name: Counts() for name in paths}
        mismatches = dict.fromkeys(paths, 0)
        for repetition in range(speed.warmups + speed.repetitions):
            for name, group in paths.items():
                before = read_counts()
                taken = self._time_one(tensor, group)
                counts[name].add(read_counts().since(before))
                mismatches[name] += int((tensor != self.world).sum())
                if repetition >= speed.warmups:
                    seconds[name].append(taken)
        return {
            "dtype": speed.dtype,
            "numel": speed.numel,
            "paths": {
                name: {"seconds": seconds[name], "counts": vars(counts[name]), "mismatches": mismatches[name]}
                for name in paths
            },
        }

    def _time_one(self, tensor: torch.Tensor, group: dist.ProcessGroup | None) -> float:
        tensor.fill_(1)
        dist.barrier(group=self.plain)
        started = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        return time.perf_counter() - started

    def _say(self, step: str) -> None:
        """Where this rank is, for the message when it gets no further."""
        (self.plan.folder / f"rank-{self.rank}.at").write_text(step, encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """The plan that the starter wrote."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    known = {one: fields[one] for one in ("seed", "unit", "group_timeout_s", "local_addresses", "ddp_layers")}
    cases = [Case(index=index, **case) for index, case in enumerate(fields["cases"])]
    return Plan(folder=path.parent, cases=cases, speeds=[Speed(**speed) for speed in fields["speeds"]], **known)


def write_result(path: Path, result: dict[str, object]) -> None:
    """Write the result so that it is either absent or whole."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)


def main() -> None:
    """Run the plan named on the command line as the rank that torchrun made this process."""
    plan = read_plan(Path(sys.argv[1]))
    rank = int(os.environ["RANK"])
    _report_failures_to(plan.folder / f"rank-{rank}.error")
    os.environ["SWITCHML_LOCAL_ADDRESS"] = plan.local_addresses[rank]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=plan.group_timeout_s))
    result = Rank(plan).run()
    result |= {
        "rank": rank,
        "world_size": dist.get_world_size(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "stats": read_stats(),
    }
    dist.destroy_process_group()
    write_result(plan.folder / f"rank-{rank}.json", result)


def _report_failures_to(path: Path) -> None:
    """Leave the uncaught exception's last line at ``path``; torchrun's own log is long."""

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        path.write_text(traceback.format_exception_only(kind, error)[-1].strip(), encoding="utf-8")
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = report


if __name__ == "__main__":
    main()
