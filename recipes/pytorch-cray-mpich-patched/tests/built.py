# SPDX-License-Identifier: BSD-3-Clause
"""What was asked of the build is in it: version, backends, NCCL of the channel, no path of the build."""

import os

import torch
import torch.distributed as dist

CUDA = os.environ["EXPECTED_CUDA"]


def main() -> None:
    """Compare what PyTorch says of itself with what the recipe asked for."""
    assert torch.__version__ == os.environ["EXPECTED_VERSION"], torch.__version__
    assert dist.is_mpi_available()
    assert dist.is_gloo_available()
    assert dist.is_nccl_available() is (CUDA != "None")
    assert torch.version.cuda == (None if CUDA == "None" else CUDA), torch.version.cuda
    dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).set("torchrun", "has one")
    described = torch.__config__.show()
    for place in ("prefix-map", "_build_env", "host_env_placehold"):
        assert place not in described, described


if __name__ == "__main__":
    main()
