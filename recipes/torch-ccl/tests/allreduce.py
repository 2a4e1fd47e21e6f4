# SPDX-License-Identifier: BSD-3-Clause
"""One of two ranks that use the backend ccl: results, the libraries it loaded, and what carried the data."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import oneccl_bindings_for_pytorch  # noqa: F401  (registers the backend)
import torch
import torch.distributed as dist

RANK = int(os.environ.get("PMI_RANK", os.environ.get("RANK", "-1")))
PREFIX = Path(sys.prefix).resolve()
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def check_collectives() -> None:
    """Values that are exact in every type."""
    for dtype in TYPES:
        for numel in (1, 257, 100_003):
            tensor = torch.arange(numel).remainder(7).to(dtype) * (RANK + 1)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, torch.arange(numel).remainder(7).to(dtype) * 3), (dtype, numel)
    largest = torch.tensor([RANK, -RANK])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    assert largest.tolist() == [1, 0]
    parts = [torch.empty(5) for _ in range(2)]
    dist.all_gather(parts, torch.full((5,), float(RANK)))
    assert [part[0].item() for part in parts] == [0.0, 1.0]
    broadcast = torch.full((3,), float(RANK))
    dist.broadcast(broadcast, src=1)
    assert broadcast.tolist() == [1.0, 1.0, 1.0]


def check_asynchronous() -> None:
    """Four in flight, waited for in order."""
    tensors = [torch.full((70_001,), float(RANK + index)) for index in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert [tensor.unique().tolist() for tensor in tensors] == [[2.0 * index + 1] for index in range(4)]


def check_training() -> None:
    """DistributedDataParallel gives all ranks the mean of their gradients."""
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 4)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(torch.full((1, 8), float(RANK))).sum().backward()
    gradient = model.weight.grad
    assert gradient is not None
    assert torch.equal(gradient, torch.full((4, 8), 0.5))


def check_libraries() -> None:
    """oneCCL and MPI are those of this environment, and the only ones."""
    files = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    for stem in ("libccl.so", "libmpich.so", "libmpi.so"):
        found = {path for path in files if path.name.startswith(stem)}
        assert all(path.is_relative_to(PREFIX) for path in found), found
    for library in ("libccl.so.1", "libmpi.so.12"):
        assert (PREFIX / "lib" / library).resolve() in files, library


def main() -> None:
    """Run all checks."""
    store = dist.FileStore(sys.argv[1], 2)
    dist.init_process_group("ccl", store=store, rank=RANK, world_size=2, timeout=timedelta(seconds=60))
    assert dist.get_backend() == "ccl"
    check_collectives()
    check_asynchronous()
    check_training()
    check_libraries()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {RANK}: right")


if __name__ == "__main__":
    main()
