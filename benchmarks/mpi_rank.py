# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the benchmark of allreduces over MPI: `mpiexec -n N python mpi_rank.py PLAN.json`.

Runs in the environment that is measured.

Each call of an allreduce follows one of the others' on the same values, after a barrier; all sums are compared. Who
comes first changes from round to round: a call finds caches that the one before it has filled or emptied. Writes
rank-N.json beside the plan: seconds of each call by path and size, and the processor time of an idle wait.

What PyTorch itself takes for a call shows in the path "PyTorch+mpi4py": a backend that does nothing, with MPI's
blocking call after it, is about what a backend can reach.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from mpi4py import MPI  # type: ignore[import-not-found]  # in the measured environment; before the group, so it ends MPI

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S = 2.0
LIMIT = timedelta(minutes=5)


def paths_of(port: int) -> dict[str, Callable[[torch.Tensor], object]]:
    """PyTorch's backend ``mpi`` as scripts call it; mpi4py's in-place Allreduce, alone and after a call of PyTorch that
    does nothing; gloo's group, which spares c10d's Python.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.TCPStore("127.0.0.1", port, size, is_master=rank == 0, timeout=LIMIT)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, LIMIT)
    comm = MPI.COMM_WORLD.Dup()
    nothing = group_that_does_nothing(rank, size)

    def mpi4py(tensor: torch.Tensor) -> None:
        comm.Allreduce(MPI.IN_PLACE, tensor.numpy())

    def mpi4py_after_pytorch(tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=nothing)
        mpi4py(tensor)

    return {
        "PyTorch": dist.all_reduce,
        "mpi4py": mpi4py,
        "PyTorch+mpi4py": mpi4py_after_pytorch,
        "gloo": lambda tensor: gloo.allreduce([tensor]).wait(),
    }


def group_that_does_nothing(rank: int, size: int) -> dist.ProcessGroup:
    """Of PyTorch's own backend for tests, which carries nothing."""
    group = dist.ProcessGroup(rank, size)
    made = torch._C._distributed_c10d.FakeProcessGroup
    # 2.6 has a constructor instead
    backend = made._create_internal(rank, size) if hasattr(made, "_create_internal") else made(rank, size)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    return group


def measure(
    paths: dict[str, Callable[[torch.Tensor], object]], numel: int, warmups: int, calls: int
) -> dict[str, list[float]]:
    """Seconds of each call that counts, by path."""
    values = torch.arange(numel).remainder(7).float() + dist.get_rank()
    expected = torch.stack([values - dist.get_rank() + rank for rank in range(dist.get_world_size())]).sum(0)
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    names = list(paths)
    for call in range(warmups + calls):
        first = call % len(names)
        for name in names[first:] + names[:first]:
            tensor = values.clone()
            dist.barrier()
            started = time.perf_counter()
            paths[name](tensor)
            elapsed_s = time.perf_counter() - started
            if not torch.equal(tensor, expected):
                sys.exit(f"{name}: wrong sums of {numel} elements")
            if call >= warmups:
                seconds[name].append(elapsed_s)
    return seconds


def idle_share() -> float:
    """The share of a core that rank 0 takes while it waits for the others."""
    dist.barrier()
    if dist.get_rank() != 0:
        time.sleep(IDLE_S)
    before = time.process_time()
    dist.barrier()
    return (time.process_time() - before) / IDLE_S


def main() -> None:
    """Measure what the plan asks for."""
    plan_file = Path(sys.argv[1])
    plan: dict[str, Any] = json.loads(plan_file.read_text())
    torch.set_num_threads(1)
    dist.init_process_group("mpi")
    paths = paths_of(plan["port"])
    rows = [measure(paths, *size) for size in plan["sizes"]]
    report = {"sizes": rows, "idle": idle_share()}
    plan_file.with_name(f"rank-{dist.get_rank()}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
