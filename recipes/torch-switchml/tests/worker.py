# SPDX-License-Identifier: BSD-3-Clause
"""An ordinary script that knows nothing of SwitchML: sums over gloo, and checks them."""

import torch
import torch.distributed as dist
from worker_numel import NUMEL

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for dtype, tolerance in ((torch.int32, 0.0), (torch.float32, 1e-6), (torch.float64, 0.0)):
    parts = [torch.arange(NUMEL, dtype=torch.float64).add(part).remainder(1000).to(dtype) for part in range(size)]
    tensor = parts[rank].clone()
    dist.all_reduce(tensor)
    exact = torch.stack([part.double() for part in parts]).sum(dim=0)
    error = (tensor.double() - exact).abs().max().item()
    assert error <= tolerance * exact.abs().max().item(), (dtype, error)
dist.destroy_process_group()
