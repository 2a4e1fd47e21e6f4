# SPDX-License-Identifier: BSD-3-Clause
"""The patched PyTorch beside the foundation's stock one on the CPU: a matrix product, a convolution, a training step.

`python -m benchmarks.pytorch_cpu` makes an environment of each from output/channel, which `make pytorch` fills, and
runs them in turn, so that a busy machine is as busy for both. Writes pytorch_cpu.json and .md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from channel_tools.environments import activated_environment, create_environment
from channel_tools.system.processes import run_command
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import find_cache
from channel_tools.validate.judging import spread_of

SPECS = {"patched": "pytorch-cray-mpich=*=patched_cpu*", "stock": "pytorch"}
SUBDIR = "linux-64"
ROUNDS = 5
LIMIT_S = 600.0
_RUN = """
import json, sys, time, torch
torch.manual_seed(1)
torch.set_num_threads(int(sys.argv[1]))

def timed(work, calls):
    work()
    seconds = []
    for _ in range(calls):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds

left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
images, kernels = torch.randn(8, 64, 56, 56), torch.randn(64, 64, 3, 3)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
pictures, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))

def step():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()

print(json.dumps({
    "version": torch.__version__,
    "product of 1024 x 1024 matrices": timed(lambda: left @ right, 10),
    "3 x 3 convolution of 8 x 64 x 56 x 56": timed(lambda: torch.nn.functional.conv2d(images, kernels, padding=1), 10),
    "training step of a small convolutional model": timed(step, 20),
}))
"""


def run(prefix: Path, threads: int) -> dict[str, list[float]]:
    """Seconds of each call by what is called, of one process; and the version under ``version``."""
    command: list[str | Path] = [prefix / "bin" / "python", "-c", _RUN, str(threads)]
    variables = activated_environment(prefix, environ=os.environ)
    timings: dict[str, list[float]] = json.loads(run_command(command, env=variables, timeout_s=LIMIT_S).stdout)
    return timings


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channel", type=Path, default=Path("output/channel"))
    parser.add_argument("--output", type=Path, default=Path("output/bench"))
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in SPECS}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        for name, spec in SPECS.items():
            asyncio.run(
                create_environment(
                    Path(holder) / name,
                    [spec, "numpy"],
                    [arguments.channel.resolve().as_uri()],
                    package_cache=find_cache(os.environ) / "packages",
                    subdir=SUBDIR,
                    progress=SilentProgress(),
                )
            )
        for _ in range(ROUNDS):
            for name in SPECS:
                timings = run(Path(holder) / name, threads)
                versions[name] = str(timings.pop("version"))
                for call, calls in timings.items():
                    seconds[name].setdefault(call, []).extend(calls)
    heads = [f"{name} {version}" for name, version in versions.items()]
    lines = [
        f"{datetime.now(UTC).isoformat(timespec='seconds')}, {threads} threads, load {os.getloadavg()[0]:.1f}.\n",
        f"| ms (quartiles) | {' | '.join(heads)} | times stock's |",
        "|---|---:|---:|---:|",
    ]
    for call in seconds["stock"]:
        spreads = [spread_of(seconds[name][call]) for name in SPECS]
        cells = " | ".join(f"{1e3 * s.median:.1f} ({1e3 * s.lower:.1f} to {1e3 * s.upper:.1f})" for s in spreads)
        ratio = statistics.median(seconds["patched"][call]) / statistics.median(seconds["stock"][call])
        lines.append(f"| {call} | {cells} | {ratio:.2f} |")
    arguments.output.mkdir(parents=True, exist_ok=True)
    table = "\n".join(lines)
    document = {"schema": 1, "threads": threads, "versions": versions, "seconds": seconds}
    (arguments.output / "pytorch_cpu.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (arguments.output / "pytorch_cpu.md").write_text(table + "\n", encoding="utf-8")
    print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
