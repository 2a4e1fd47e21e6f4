# SPDX-License-Identifier: BSD-3-Clause
"""Where nothing asks for SwitchML, nothing of it happens: no library, no session; and PyTorch is what was asked for."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

for name in [name for name in os.environ if name.startswith("SWITCHML_")]:
    del os.environ[name]


def main() -> None:
    """One rank alone."""
    assert torch.__version__ == os.environ["EXPECTED_PYTORCH"], torch.__version__
    assert torch.version.cuda == (None if os.environ["EXPECTED_CUDA"] == "None" else os.environ["EXPECTED_CUDA"])
    assert not dist.is_mpi_available()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method="file://" + folder + "/meeting", rank=0, world_size=1)
        tensor = torch.ones(10)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.ones(10)), tensor
        report = json.loads(dist.ProcessGroupGloo._switchml_report())
        # it counts the processes that are left in its file, and waits for that file, for half an hour, if it is gone
        dist.destroy_process_group()
    assert report["version"] == os.environ["EXPECTED_VERSION"], report
    assert report["active"] is False, report
    assert not any(report["fallbacks"].values()), report
    assert "libswitchml" not in Path("/proc/self/maps").read_text()


if __name__ == "__main__":
    main()
