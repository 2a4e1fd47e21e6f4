# SPDX-License-Identifier: BSD-3-Clause
"""What ``launch --watch`` costs a job that moves: DistributedDataParallel over gloo, with and without it in turn.

Usage: python -m benchmarks.watch PREFIX [REPETITIONS]; PREFIX is an environment of the stack udp.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, WATCH_S = 2, 30
LIMIT_S = 600
SCRIPT = """\
import json, resource, time, torch, torch.distributed as dist
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
layers = [layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(64, 512)
def step():
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
for _ in range(50):
    step()
dist.barrier()
began, used_before = time.perf_counter(), used()
for _ in range(200):
    step()
took = torch.tensor([time.perf_counter() - began, used() - used_before])
dist.all_reduce(took, op=dist.ReduceOp.MAX)
if dist.get_rank() == 0:
    print(json.dumps(took.tolist()))
dist.destroy_process_group()
"""


def train(prefix: Path, folder: Path, *options: str) -> tuple[float, float]:
    """The seconds that 200 steps took, and their processor time, of the slowest rank."""
    command = [sys.executable, "-m", "channel_tools", "-q", "launch", "--stack", "udp", "--prefix", str(prefix)]
    done = subprocess.run(
        [*command, "--ranks", str(RANKS), *options, "train.py"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    took, used = json.loads(done.stdout.splitlines()[-1])
    return took, used


def main(prefix: Path, repetitions: int) -> None:
    """Print median and range of both ways."""
    figures: dict[str, list[tuple[float, float]]] = {"plain": [], "watched": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        for number in range(repetitions):
            # in turn, and each first in half of them
            for way in sorted(figures, reverse=bool(number % 2)):
                options = ("--watch", str(WATCH_S)) if way == "watched" else ()
                figures[way].append(train(prefix, folder, *options))
    for way, pairs in figures.items():
        for what, values in zip(("seconds", "of the processor"), zip(*pairs, strict=True), strict=True):
            words = f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
            print(f"{way:8} 200 steps, {what}: {words}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 10)  # noqa: PLR2004
