# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary script, run under mpiexec: sums over MPI, and the plugin's counter that says who carried them."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

NUMEL = 100_003

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
assert size == 2, f"mpiexec started 2 ranks, MPI has {size}"
for dtype in (torch.float32, torch.int64, torch.bfloat16):
    tensor = torch.arange(NUMEL).remainder(8).to(dtype) * (rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(NUMEL).remainder(8).to(dtype) * 3), dtype
dist.barrier()

report = sys.modules["torch_mpi"].stats()
assert report["collectives"]["all_reduce"] == {"calls": 3, "elements": 3 * NUMEL, "bytes": 14 * NUMEL}, report
library = Path(report["library"]["path"]).resolve()
assert library.is_relative_to(Path(sys.prefix).resolve()), library
dist.destroy_process_group()
