# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the validation of a process-group backend, with a gloo group for comparison.

Runs under torchrun or mpiexec in the environment that is being validated, so it uses only torch, the standard library,
the modules that register the backend, and the script beside it. It decides nothing: it writes its results, and which
files it had loaded, to ``rank-N.json``, which its starter checks.

Usage: distributed_allreduce.py PLAN.json (see channel_tools.validate.distributed.method).
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from channel_tools.validate.workers import reductions
else:
    import reductions  # before torch: it ties this process to its launcher

import torch
import torch.distributed as dist

# What launchers call a process's number, the number of processes, and its number on this host: torchrun, Hydra (MPICH,
# Intel MPI, MVAPICH), Open MPI.
_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)


@dataclass(frozen=True, kw_only=True)
class DistributedWork(reductions.RankWork):
    """The shared plan, and the backend."""

    ranks: int
    backend: str
    device: str
    imports: list[str]
    counter: str


@dataclass(frozen=True, kw_only=True)
class RankNumbers:
    """The number of this process among the ranks."""

    rank: int
    size: int
    local_rank: int


def read_rank_numbers() -> RankNumbers:
    """Read them from the launcher's variables. Raises LookupError for an unknown launcher."""
    for rank, size, local_rank in _NAMES:
        if rank in os.environ and size in os.environ:
            number = int(os.environ[rank])
            local = int(os.environ.get(local_rank, number))
            return RankNumbers(rank=number, size=int(os.environ[size]), local_rank=local)
    known = ", ".join(names[0] for names in _NAMES)
    raise LookupError(f"the launcher sets none of the variables {known}")


def find_store(plan: DistributedWork, numbers: RankNumbers, timeout: timedelta) -> dist.Store:
    """The store by which ranks meet: a file, or on several hosts the first rank's server, since NFS may lack locks."""
    if not plan.is_on_hosts:
        return dist.FileStore(str(plan.folder / "store"), numbers.size)
    reductions.use_interface_towards(os.environ["MASTER_ADDR"])
    store: dist.Store = next(dist.rendezvous("env://", numbers.rank, numbers.size, timeout=timeout))[0]
    return store


class DistributedRank(reductions.Rank):
    """The default group, which is the backend's, beside gloo's own, which no backend replaces."""

    def __init__(self, plan: DistributedWork, baseline: dist.ProcessGroupGloo, device: torch.device) -> None:
        second = dist.new_group() if any(case.group == "second" for case in plan.cases) else None
        super().__init__(plan, second, device=device)
        self.baseline = baseline
        self.counter = plan.counter

    def run(self) -> dict[str, object]:
        """Run all cases, then all measurements, then report this process's data."""
        count = counter_of(self.counter)
        before = count()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            cases = [self.run_case(case) for case in self.plan.cases]
        counted = count() - before
        speeds = [self._measure(speed) for speed in self.plan.speeds]
        carrier = dist.group.WORLD._get_backend(self.device)  # noqa: SLF001  (nothing public says which object works)
        return {
            "cases": cases,
            "speeds": speeds,
            "backend": dist.get_backend(),
            "carrier": f"{type(carrier).__module__}.{type(carrier).__qualname__}",
            "carrier_name": name_of(carrier),
            "counted": counted if self.counter else None,
            "events": {event.key: event.count for event in profiler.key_averages() if "reduce" in event.key},
            "libraries": loaded_libraries(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "thread_cpus": cpus_of_other_threads(),
        }

    def _measure(self, speed: reductions.Speed) -> dict[str, object]:
        paths = {"default": dist.all_reduce, "plain": self._reduce_by_gloo}
        return self.measure(speed, paths, barrier=lambda: self.baseline.barrier().wait())

    def _reduce_by_gloo(self, tensor: torch.Tensor) -> None:
        host = tensor.cpu()
        self.baseline.allreduce([host]).wait()
        if host is not tensor:
            tensor.copy_(host)


def counter_of(name: str) -> Callable[[], int]:
    """The function MODULE:FUNCTION that returns how many allreduces the backend has carried; 0 for ""."""
    if not name:
        return int
    module, _, function = name.partition(":")
    counter: Callable[[], int] = getattr(importlib.import_module(module), function)
    return counter


def name_of(carrier: object) -> str:
    """The name of a group's backend object; that of its class if the backend has not set one."""
    try:
        return str(carrier.name())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return type(carrier).__name__.removeprefix("ProcessGroup")


def loaded_libraries() -> list[str]:
    """The files of the shared libraries that this process has mapped."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    files = {line.partition("/")[2] for line in lines if "/" in line}
    return sorted(f"/{name}" for name in files if ".so" in name.rpartition("/")[2])


def cpus_of_other_threads() -> list[list[int]]:
    """The hardware threads that each of this process's threads but this one is bound to."""
    own = str(threading.get_native_id())
    numbers = (int(task.name) for task in Path("/proc/self/task").iterdir() if task.name != own)
    return [sorted(os.sched_getaffinity(number)) for number in numbers]


def main() -> None:
    """Run the plan named on the command line as the rank that the launcher made this process."""
    plan = reductions.read_plan(Path(sys.argv[1]), DistributedWork)
    numbers = read_rank_numbers()
    reductions.report_to(plan.folder, numbers.rank, end_launcher=True)
    if numbers.size != plan.ranks:
        raise ValueError(f"ranks that the launcher started: {numbers.size}; expected {plan.ranks}, as requested")
    torch.set_num_threads(1)
    device = torch.device(plan.device, numbers.local_rank) if plan.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    for module in plan.imports:
        importlib.import_module(module)
    timeout = timedelta(seconds=plan.group_timeout_s)
    store = find_store(plan, numbers, timeout)
    if plan.backend == "mpi":
        dist.init_process_group("mpi", timeout=timeout)  # MPI has its own ranks and rejects others
    else:
        dist.init_process_group(plan.backend, store=store, rank=numbers.rank, world_size=numbers.size, timeout=timeout)
    baseline = dist.ProcessGroupGloo(dist.PrefixStore("baseline", store), numbers.rank, numbers.size, timeout)
    result = {**DistributedRank(plan, baseline, device).run(), **reductions.describe_rank()}
    baseline.barrier().wait()
    del baseline
    dist.destroy_process_group()
    reductions.write_result(plan.folder / f"rank-{numbers.rank}.json", result)


if __name__ == "__main__":
    main()
