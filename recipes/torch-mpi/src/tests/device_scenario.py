# SPDX-License-Identifier: BSD-3-Clause
"""A rank that reduces and gathers tensors of a device that MPI does not take, under each policy; what it saw as JSON.

The device is the slow one of torch-switchml's tests, in the library that SLOW_DEVICE_LIBRARY names: it has streams and
pinned memory of the host, and gives wrong numbers to whoever does not wait for its copies.
"""

import ctypes
import json
import os
import types
from pathlib import Path

import torch
import torch.distributed as dist

NUMEL = 40_001


def load_device() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ["SLOW_DEVICE_LIBRARY"])
    torch.utils.rename_privateuse1_backend("slow")
    seeds = types.SimpleNamespace(_is_in_bad_fork=lambda: False, manual_seed_all=lambda _: None)
    torch._register_device_module("slow", seeds)
    library.slow_device_register()
    library.slow_device_most_pinned_bytes.restype = ctypes.c_size_t
    return library


def reduce_and_gather(backend: dist.Backend, rank: int, size: int) -> bool:
    """Whether the numbers are right, also where the tensor has gaps."""
    whole = torch.full((NUMEL, 2), float(rank + 1)).to("slow")
    backend.allreduce([whole.select(1, 0)]).wait()
    parts = torch.empty(size * 3, device="slow")
    backend._allgather_base(parts, torch.full((3,), float(rank), device="slow")).wait()
    summed = whole.cpu()
    return bool(
        summed[:, 0].eq(sum(range(1, size + 1))).all()
        and summed[:, 1].eq(rank + 1).all()
        and torch.equal(parts.cpu(), torch.arange(size).float().repeat_interleave(3))
    )


def sum_twice(backend: dist.Backend, size: int) -> bool:
    """Whether a sum that nobody waits for is what the next call over the same memory adds up."""
    whole = torch.ones(NUMEL).to("slow")
    works = [backend.allreduce([part]) for part in (whole, whole[NUMEL // 2 :])]
    for work in works:
        work.wait()
    summed = whole.cpu()
    return bool(summed[: NUMEL // 2].eq(size).all() and summed[NUMEL // 2 :].eq(size**2).all())


def take_extremes(backend: dist.Backend, rank: int) -> bool:
    """Whether the one rank's NaN is in the maximum."""
    tensor = torch.tensor([float("nan") if rank == 0 else 1.0, float(rank)]).to("slow")
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    backend.allreduce([tensor], options).wait()
    return bool(tensor.cpu().isnan().tolist() == [True, False])


def main() -> None:
    library = load_device()
    dist.init_process_group("mpi")
    import torch_mpi
    from torch_mpi import _C

    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    rank, size = dist.get_rank(), dist.get_world_size()
    seen = {}
    for name in ("AUTO", "HOST", "REQUIRE"):
        _C.set_device_policy(getattr(_C.DevicePolicy, name))
        before = torch_mpi.stats()["staged_tensors"]
        try:
            result: object = [
                *(reduce_and_gather(backend, rank, size) for _ in range(2)),
                sum_twice(backend, size),
                take_extremes(backend, rank),
            ]
        except RuntimeError as err:
            result = str(err)
        seen[name] = {
            "result": result,
            "staged": torch_mpi.stats()["staged_tensors"] - before,
            "pinned": library.slow_device_most_pinned_bytes(),
        }
    Path(os.environ["SCENARIO_FOLDER"], f"seen.{rank}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
