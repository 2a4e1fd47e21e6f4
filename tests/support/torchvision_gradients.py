# SPDX-License-Identifier: BSD-3-Clause
"""``mpiexec -n N python torchvision_gradients.py``: a torchvision model's gradients by DDP over MPI, beside mpi4py.

mpi4py starts MPI and adds up what each rank calculates by itself; DDP's gradients have to be the mean of these.
"""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
import torchvision  # type: ignore[import-not-found]
from mpi4py import MPI  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
assert (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) == (rank, size)

boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
assert kept == [0, 2]

torch.manual_seed(0)  # the same weights on each rank
alone = torchvision.models.resnet18()
together = DistributedDataParallel(copy.deepcopy(alone))
torch.manual_seed(1 + rank)  # and other images
images = torch.rand(2, 3, 64, 64)
for model in (alone, together):
    model(images).square().mean().backward()

pairs = list(zip(alone.parameters(), together.module.parameters(), strict=True))
for local, reduced in pairs:
    expected = torch.empty_like(local.grad)
    MPI.COMM_WORLD.Allreduce(local.grad.numpy(), expected.numpy())
    expected /= size
    torch.testing.assert_close(reduced.grad, expected)
    assert not torch.equal(reduced.grad, local.grad)

calls = sys.modules["torch_mpi"].stats()["collectives"]["all_reduce"]["calls"]
assert calls > 0
if rank == 0:
    versions = f"torchvision {torchvision.__version__}, PyTorch {torch.__version__}"
    told = f"{len(pairs)} gradients of {size} ranks as mpi4py's, allreduces by torch_mpi: {calls}"
    sys.stdout.write(f"{versions}: {told}\n")
dist.destroy_process_group()
