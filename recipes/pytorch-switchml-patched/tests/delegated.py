# SPDX-License-Identifier: BSD-3-Clause
"""Two ranks reduce over a software switch; counters on both sides prove it.

Fails on a silent fallback: a right sum alone would also be gloo's.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from worker import NUMEL

RANKS = 2
WORKER = Path(__file__).with_name("worker.py")
LIMIT_S = 120


def free_udp_port() -> int:
    """A source port for the workers that another test at the same time does not take."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(folder: Path, controller: str) -> None:
    """All ranks, to their end."""
    variables = dict(
        os.environ,
        SWITCHML_CONTROLLER=controller,
        SWITCHML_WORKER_PORT=str(free_udp_port()),
        SWITCHML_STATS_FILE=str(folder / "rank{rank}.json"),
        GLOO_SOCKET_IFNAME="lo",
        WORLD_SIZE=str(RANKS),
        OMP_NUM_THREADS="1",
    )
    command = [sys.executable, str(WORKER), str(folder / "meeting")]
    ranks = [subprocess.Popen(command, env=dict(variables, RANK=str(rank))) for rank in range(RANKS)]
    try:
        for process in ranks:
            assert process.wait(timeout=LIMIT_S) == 0, process.args
    finally:
        for process in ranks:
            process.kill()


def reduce_over_switch(folder: Path) -> dict[str, Any]:
    """Run the ranks; the switch's counters at its end."""
    command = ["switchml-switch", "--address", "127.0.0.1", "--port", "0", "--controller-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, universal_newlines=True) as switch:
        assert switch.stdout is not None
        try:
            run_ranks(folder, json.loads(switch.stdout.readline())["controller"])
        finally:
            switch.terminate()
        stats: dict[str, Any] = json.loads(switch.stdout.readline())["stats"]
    return stats


def main() -> None:
    """Compare what the ranks say they delegated with what the switch says it summed."""
    floats = 2 if os.environ["EXPECTED_CUDA"] != "None" and torch.cuda.is_available() else 1
    with tempfile.TemporaryDirectory() as name:
        stats = reduce_over_switch(Path(name))
        reports = [json.loads((Path(name) / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    for report in reports:
        for dtype, jobs in (("float32", floats), ("int32", 1)):
            expected = {"jobs": jobs, "elements": jobs * NUMEL, "bytes": 4 * jobs * NUMEL}
            assert report["delegated"][dtype] == expected, report
        assert report["fallbacks"]["dtype"] == 1, report
        assert report["fallbacks"]["reduce_op"] == 1, report
        assert report["fallbacks"]["group"] == 1, report
        assert report["failed_jobs"] == 0, report
        assert Path(report["library"]["path"]).resolve().parent == Path(sys.prefix).resolve() / "lib", report
    assert stats["sessions_opened"] == 1, stats
    assert stats["elements_aggregated"] >= (floats + 1) * NUMEL, stats
    print(json.dumps({"ranks": reports, "switch": stats}, indent=2))


if __name__ == "__main__":
    main()
