# SPDX-License-Identifier: BSD-3-Clause
"""A group of one rank, with nothing that asks for SwitchML, is as it would be without the plugin."""

import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

os.environ.pop("SWITCHML_CONTROLLER", None)

import torch
import torch.distributed as dist

found = {point.name: point.value for point in entry_points(group="torch.backends")}
assert found.get("switchml") == "torch_switchml:autoload", found
assert "torch_switchml" in sys.modules, "PyTorch did not load the entry point"
assert "torch_switchml._C" not in sys.modules

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
assert type(backend) is dist.ProcessGroupGloo, type(backend)
dist.destroy_process_group()
assert "torch_switchml._C" not in sys.modules
assert "libswitchml" not in Path("/proc/self/maps").read_text()
assert sys.modules["torch_switchml"].stats()["active"] is False
