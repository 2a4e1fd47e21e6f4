# SPDX-License-Identifier: BSD-3-Clause
"""``mpiexec -n N python beside_mpi4py.py mpi4py|torch``: both reduce in one process; who is named starts MPI."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

if sys.argv[1] == "torch":
    dist.init_process_group("mpi")
from mpi4py import MPI  # type: ignore[import-not-found]

if sys.argv[1] == "mpi4py":
    dist.init_process_group("mpi")

rank, size = dist.get_rank(), dist.get_world_size()
assert (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) == (rank, size)
ours = torch.full((1000,), rank + 1.0)
theirs = ours.clone()
dist.all_reduce(ours)
MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, theirs.numpy())
assert torch.equal(ours, theirs)
work = dist.all_reduce(ours, async_op=True)  # under way while the other calls MPI
assert MPI.COMM_WORLD.allreduce(1) == size
work.wait()
assert torch.equal(ours, theirs * size)
if rank == 0:
    calls = sys.modules["torch_mpi"].stats()["collectives"]["all_reduce"]["calls"]
    sys.stdout.write(f"{sys.argv[1]} first: {size} ranks, {calls} allreduces by torch_mpi\n")
dist.destroy_process_group()
