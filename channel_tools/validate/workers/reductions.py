# SPDX-License-Identifier: BSD-3-Clause
"""Common parts of the worker scripts: the plan, reproducible inputs, and the comparison with expected results.

The scripts run in the environment that is being validated and import this from their own folder, so it uses only torch
and the standard library, not channel_tools. Expected values are computed chunk by chunk, so that a rank needs memory
for only two tensors.
"""

from __future__ import annotations

import copy
import ctypes
import fcntl
import itertools
import json
import math
import os
import platform
import signal
import socket
import struct
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

# A rank ends with the launcher that started it, also while it imports torch, which takes seconds.
_PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

CHUNK = 1 << 20  # elements made and compared at a time; a multiple of every packet size
INT32_LIMIT = 2**31
EXACT_LIMITS = {"int32": INT32_LIMIT, "int64": 2**63, "float64": 2**53}
"""A type represents all whole numbers below this, and so every sum of numbers chosen below it divided by the ranks."""
SPREAD_EXPONENTS = 41
_SIOCGIFADDR = 0x8915
_ANY_PORT = 9


@dataclass(frozen=True, kw_only=True)
class Case:
    """As channel_tools.validate.cases.Case, without what only the checks need."""

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
    layers: list[int]


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One size to measure."""

    dtype: str
    numel: int
    warmups: int
    repetitions: int


@dataclass(frozen=True, kw_only=True)
class RankWork:
    """The work of all ranks, common to all methods."""

    folder: Path
    seed: int
    unit: int
    group_timeout_s: float
    is_on_hosts: bool
    cases: list[Case]
    speeds: list[Speed]


P = TypeVar("P", bound=RankWork)


def read_plan(path: Path, kind: type[P]) -> P:
    """Read the plan that the starter wrote."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    cases = [Case(index=index, **case) for index, case in enumerate(fields.pop("cases"))]
    speeds = [Speed(**speed) for speed in fields.pop("speeds")]
    return kind(folder=path.parent, cases=cases, speeds=speeds, **fields)


@dataclass
class Deviation:
    """The deviation of results from the expected ones: the largest error, and the number of wrong values."""

    max_error: float = 0.0
    mismatches: int = 0

    def add(self, other: Deviation) -> None:
        """Add the result of another comparison."""
        self.max_error = max(self.max_error, other.max_error)
        self.mismatches += other.mismatches

    def note_errors(self, errors: torch.Tensor) -> None:
        """Add relative errors, none of them negative; NaN counts as a mismatch."""
        largest = float(errors.max()) if errors.numel() else 0.0  # NaN if there is one
        if math.isfinite(largest):
            self.max_error = max(self.max_error, largest)
            return
        finite = torch.isfinite(errors)
        self.mismatches += int((~finite).sum())
        if bool(finite.any()):
            self.max_error = max(self.max_error, float(errors[finite].max()))


@dataclass(frozen=True, kw_only=True)
class Values:
    """The input of a rank for one call of a case; every rank can compute that of any other."""

    plan: RankWork
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
                limit = (EXACT_LIMITS[self.case.dtype] - 1) // max(2, self.world)
                values = torch.randint(-limit, limit + 1, (count,), generator=generator).to(dtype)
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
        """The first elements of the chunks."""
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


def compare(result: torch.Tensor, values: Values) -> Deviation:
    """Compare a result with the same reduction in float64 or int64."""
    deviation = Deviation()
    for start in values.starts():
        reduced = result[start : start + CHUNK]
        inputs = (values.of_rank(rank, start) for rank in range(values.world))
        if values.case.data == "positive":
            exact = _reduced((tensor.double() for tensor in inputs), "SUM")
            deviation.note_errors((exact - reduced).abs_().div_(exact))
        elif values.case.data in {"normal", "spread", "nonfinite"}:
            _compare_by_unit(deviation, reduced.double(), [tensor.double() for tensor in inputs], values.plan.unit)
        else:
            wide = torch.float64 if reduced.is_floating_point() else torch.int64
            exact = _reduced((tensor.to(wide) for tensor in inputs), values.case.op)
            deviation.mismatches += count_unequal(reduced, exact.to(reduced.dtype))
    return deviation


def count_unequal(values: torch.Tensor, expected: torch.Tensor | int) -> int:
    """The number of elements that differ; NaN differs from everything."""
    return int((values != expected).count_nonzero())


def _reduced(inputs: Iterator[torch.Tensor], op: str) -> torch.Tensor:
    """Reduce tensors, which may be overwritten, one at a time: stacking them would double the memory."""
    combine = {"SUM": torch.add, "MAX": torch.maximum, "MIN": torch.minimum}[op]
    total = next(inputs)
    for tensor in inputs:
        combine(total, tensor, out=total)
    return total


def _compare_by_unit(deviation: Deviation, reduced: torch.Tensor, inputs: list[torch.Tensor], unit: int) -> None:
    exact = torch.stack(inputs).sum(0)
    sizes = torch.stack(inputs).abs().sum(0)
    padded = torch.nn.functional.pad(sizes, (0, -len(sizes) % unit)).view(-1, unit)
    scales = padded.amax(1).repeat_interleave(unit)[: len(sizes)]
    lost = ~torch.isfinite(sizes) & torch.isfinite(reduced)
    deviation.mismatches += int(lost.sum())
    usable = torch.isfinite(scales)
    deviation.note_errors(((reduced - exact).abs() / scales)[usable])


class Rank:
    """The run of one rank; a method's subclass defines what carries a call, and counts."""

    def __init__(self, plan: RankWork, second: dist.ProcessGroup | None, *, device: torch.device | None = None) -> None:
        """``second`` is the group for cases with a second group; others use the default group."""
        self.plan = plan
        self.second = second
        self.rank: int = dist.get_rank()
        self.world: int = dist.get_world_size()
        self.device = torch.device("cpu") if device is None else device

    def run_case(self, case: Case) -> dict[str, object]:
        """Make inputs, reduce, compare."""
        self.say(case.name)
        started = time.perf_counter()
        deviation = self._train(case) if case.data == "ddp" else self._reduce(case)
        return {
            "name": case.name,
            "seconds": time.perf_counter() - started,
            "max_error": deviation.max_error,
            "mismatches": deviation.mismatches,
        }

    def measure(
        self,
        speed: Speed,
        paths: Mapping[str, Callable[[torch.Tensor], object]],
        *,
        barrier: Callable[[], object],
        after_call: Callable[[str], object] = lambda _name: None,
    ) -> dict[str, Any]:
        """Time each path's calls in turn; ``after_call`` gets the path's name after each, unmeasured.

        Ranks that are done wait for the others before they check results, which takes processor time.
        """
        self.say(f"bandwidth {speed.dtype} {speed.numel}")
        tensor = torch.empty(speed.numel, dtype=getattr(torch, speed.dtype), device=self.device)
        results: dict[str, dict[str, Any]] = {name: {"seconds": [], "mismatches": 0} for name in paths}
        for repetition in range(speed.warmups + speed.repetitions):
            for name, reduce in paths.items():
                tensor.fill_(1)
                self._synchronise()
                barrier()
                started = time.perf_counter()
                reduce(tensor)
                self._synchronise()
                seconds = time.perf_counter() - started
                barrier()
                after_call(name)
                results[name]["mismatches"] += count_unequal(tensor, self.world)
                if repetition >= speed.warmups:
                    results[name]["seconds"].append(seconds)
        return {"dtype": speed.dtype, "numel": speed.numel, "paths": results}

    def say(self, step: str) -> None:
        """Record the progress of this rank, for the message if it hangs."""
        (self.plan.folder / f"rank-{self.rank}.at").write_text(step, encoding="utf-8")

    def _reduce(self, case: Case) -> Deviation:
        inputs = [Values(plan=self.plan, case=case, call=call, world=self.world) for call in range(case.calls)]
        tensors = [values.tensor(self.rank).to(self.device) for values in inputs]
        group = self.second if case.group == "second" else None
        op = getattr(dist.ReduceOp, case.op)
        works = [dist.all_reduce(tensor, op=op, group=group, async_op=case.is_async) for tensor in tensors]
        for work in works:
            if work is not None:
                work.wait()
        deviation = Deviation()
        for values, tensor in zip(inputs, tensors, strict=True):
            deviation.add(compare(tensor.cpu(), values))
        return deviation

    def _train(self, case: Case) -> Deviation:
        """Compare DistributedDataParallel's gradients with the mean of all ranks' own."""
        torch.manual_seed(self.plan.seed)
        layers = (torch.nn.Linear(*pair) for pair in itertools.pairwise(case.layers))
        model = torch.nn.Sequential(*layers).to(self.device)
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        deviation = Deviation()
        for step in range(case.calls):
            expected = self._mean_gradients(copy.deepcopy(model), case, step)
            optimizer.zero_grad()
            self._backward(parallel, case, self.rank, step)
            gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
            deviation.note_errors((gradients - expected).abs() / expected.abs().max())
            optimizer.step()
        return deviation

    def _mean_gradients(self, model: torch.nn.Module, case: Case, step: int) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for rank in range(self.world):
            model.zero_grad()
            self._backward(model, case, rank, step)
            total = total + torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()
        return total / self.world

    def _backward(self, model: torch.nn.Module, case: Case, rank: int, step: int) -> None:
        generator = torch.Generator().manual_seed(self.plan.seed + 1000 * step + rank)
        inputs = torch.randn(16, case.layers[0], generator=generator).to(self.device)
        labels = torch.randn(16, case.layers[-1], generator=generator).to(self.device)
        torch.nn.functional.mse_loss(model(inputs), labels).backward()

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def describe_rank() -> dict[str, object]:
    """The data that every rank reports about itself."""
    return {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "host": os.environ.get("SLURMD_NODENAME") or platform.node(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def use_interface_towards(address: str) -> None:
    """Have gloo use the interface with the IPv4 address by which this host and ``address`` reach each other.

    By default, gloo uses that of the host's name, which many hosts resolve to loopback. Does nothing if the variable is
    already set, or if the address is not IPv4.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((socket.gethostbyname(address), _ANY_PORT))
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            query = struct.pack("256s", os.fsencode(name))
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, query)
            except OSError:  # it has no such address
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def write_result(path: Path, result: dict[str, object]) -> None:
    """Write the result atomically."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.replace(path)


def report_to(folder: Path, rank: int, *, end_launcher: bool = False) -> None:
    """Write this process's ID to ``rank-N.pid``, and the last line of an uncaught exception to ``rank-N.error``.

    Launchers' own logs are long. With ``end_launcher``, the process then ends by a signal: if a rank that has not
    joined MPI ends in any other way, mpiexec continues to wait for the other ranks.
    """
    (folder / f"rank-{rank}.pid").write_text(str(os.getpid()), encoding="utf-8")

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = traceback.format_exception_only(kind, error)[-1].strip()
        (folder / f"rank-{rank}.error").write_text(text, encoding="utf-8")
        sys.__excepthook__(kind, error, trace)
        if end_launcher:
            sys.stderr.flush()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    sys.excepthook = report
