# SPDX-License-Identifier: BSD-3-Clause
"""Two ranks of an unchanged script reduce over a software switch; counters on both sides prove it.

Fails on a silent fallback: a right sum alone would also be gloo's.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from worker_numel import NUMEL

RANKS = 2
WORKER = Path(__file__).with_name("worker.py")


def free_udp_port() -> int:
    """A source port for the workers that another test at the same time does not take."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reduce_over_switch(folder: Path) -> dict[str, Any]:
    """Run the script under torchrun; the switch's counters at its end."""
    command = ["switchml-switch", "--address", "127.0.0.1", "--port", "0", "--controller-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        try:
            ready = json.loads(switch.stdout.readline())
            environment = {
                **os.environ,
                "SWITCHML_CONTROLLER": ready["controller"],
                "SWITCHML_WORKER_PORT": str(free_udp_port()),
                "SWITCHML_HOST_REDUCTION": "off",  # one host's ranks would need no switch
                "SWITCHML_STATS_FILE": str(folder / "rank{rank}.json"),
                "TMPDIR": str(folder),
                "OMP_NUM_THREADS": "1",
            }
            launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
            subprocess.run([*launch, WORKER], env=environment, check=True, timeout=120)
        finally:
            switch.terminate()
        stopped = json.loads(switch.stdout.readline())
    stats: dict[str, Any] = stopped["stats"]
    return stats


def main() -> None:
    """Compare what the ranks say they delegated with what the switch says it summed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stats = reduce_over_switch(folder)
        reports = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    expected = {"jobs": 1, "elements": NUMEL, "bytes": 4 * NUMEL}
    for report in reports:
        assert report["delegated"] == {"float32": expected, "int32": expected}, report
        assert report["fallbacks"]["dtype"] == 1, report
        assert report["failed_jobs"] == 0, report
        assert Path(report["library"]["path"]).resolve().is_relative_to(Path(sys.prefix).resolve()), report
    assert stats["sessions_opened"] == 1, stats
    assert stats["elements_aggregated"] >= 2 * NUMEL, stats
    print(json.dumps({"ranks": reports, "switch": stats}, indent=2))


if __name__ == "__main__":
    main()
