# SPDX-License-Identifier: BSD-3-Clause
"""In a process that makes no group with MPI, PyTorch is as it would be without the plugin."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import torch
import torch.distributed as dist

found = {point.name: point.value for point in entry_points(group="torch.backends")}
assert found.get("mpi") == "torch_mpi:autoload", found
assert dist.is_mpi_available(), "PyTorch did not load the entry point"
assert "torch_mpi._C" not in sys.modules

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
assert type(backend) is dist.ProcessGroupGloo, type(backend)
dist.destroy_process_group()
assert "torch_mpi._C" not in sys.modules
assert "libmpi" not in Path("/proc/self/maps").read_text()
assert sys.modules["torch_mpi"].stats()["active"] is False
