# SPDX-License-Identifier: BSD-3-Clause
"""Without an emulator: the backend is there, and says what is missing when it is asked for."""

import os

import torch.distributed as dist
import torch_accl

os.environ.pop("ACCL_EMULATOR_PORT", None)
torch_accl.register()
assert "accl" in dist.Backend.backend_list
message = ""
try:
    dist.init_process_group("accl", store=dist.HashStore(), rank=0, world_size=1)
except RuntimeError as err:
    message = str(err)
assert "ACCL_EMULATOR_PORT" in message, message
