# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's allreduce over MPI beside mpi4py's in-place Allreduce and gloo's: the same ranks, a call of each in turn.

`python -m benchmarks.allreduce_mpi` makes an environment from output/channel, which `channel_tools build --variant
cray-mpich` fills, and puts mpi4py's wheel into it. `--way patched` measures the backend of a PyTorch that was built
with MPI (`make pytorch`), and with `--way plugin` too, both, in one table. Writes allreduce_mpi.json and .md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.allreduce_report import format_size, format_spread
from channel_tools.environments import activated_environment, create_environment
from channel_tools.system.processes import run_command
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import find_cache
from channel_tools.validate.judging import spread_of
from tests.support.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.validate.model import Spread

WAYS = {"plugin": "pytorch-cray-mpich=*=plugin*", "patched": "pytorch-cray-mpich=*=patched*"}
"""How PyTorch comes to MPI: by torch-mpi in a stock PyTorch, or by its own backend, built with MPI."""
SPECS = ("mpich", "pip", "numpy")
SUBDIR = "linux-64"
LIMIT_S = 900.0
RANK = Path(__file__).with_name("mpi_rank.py")
PATHS = ("PyTorch", "mpi4py", "PyTorch+mpi4py", "gloo")
SIZES = ((1, 100, 1000), (256, 100, 1000), (16 << 10, 20, 200), (1 << 18, 5, 60), (1 << 20, 3, 30), (16 << 20, 1, 9))
"""Elements of float32, calls that do not count, calls that do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One size with so many ranks: seconds of a call by path, and the machine's load average over the minute before."""

    way: str
    ranks: int
    size_bytes: int
    seconds: dict[str, Spread]
    load: float

    def ratio(self, other: str) -> float:
        """How many times as fast as the other path PyTorch's call is."""
        return self.seconds[other].median / self.seconds["PyTorch"].median


def prepare(channel: Path, prefix: Path, way: str) -> None:
    """An environment at ``prefix`` with the stack of the channel folder and mpi4py."""
    asyncio.run(
        create_environment(
            prefix,
            [WAYS[way], *SPECS],
            [channel.resolve().as_uri()],
            package_cache=find_cache(os.environ) / "packages",
            subdir=SUBDIR,
            progress=SilentProgress(),
            replace=lambda _changes: True,  # one of an earlier run
        )
    )
    run_command([prefix / "bin" / "python", "-m", "pip", "install", "--quiet", "mpi4py"], timeout_s=LIMIT_S)


def measure(
    prefix: Path, way: str, ranks: int, sizes: Sequence[tuple[int, int, int]], folder: Path
) -> tuple[list[Measured], float]:
    """Every size in one launch of the ranks, and the share of a core that an idle rank takes."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"port": free_port(), "sizes": sizes}), encoding="utf-8")
    environment = activated_environment(prefix, environ=os.environ) | {"OMP_NUM_THREADS": "1"}
    command: list[str | Path] = [prefix / "bin" / "mpiexec", "-n", str(ranks), prefix / "bin" / "python", RANK, plan]
    run_command(command, env=environment, timeout_s=LIMIT_S)
    reports = [json.loads((folder / f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]
    rows = [
        Measured(
            way=way,
            ranks=ranks,
            size_bytes=4 * numel,
            # a call takes as long as its slowest rank
            seconds={
                path: spread_of(
                    [max(call) for call in zip(*(report["sizes"][index][path] for report in reports), strict=True)]
                )
                for path in PATHS
            },
            load=os.getloadavg()[0],
        )
        for index, (numel, _, _) in enumerate(sizes)
    ]
    return rows, float(reports[0]["idle"])


def write_report(rows: Sequence[Measured], idle: dict[str, float], folder: Path) -> str:
    """Write allreduce_mpi.json and .md; the table."""
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "cores": os.cpu_count(), "idle": idle}
    document = {"schema": 1, **about, "rows": [asdict(row) for row in rows]}
    shares = ", ".join(f"{share:.0%} {of}" for of, share in idle.items())
    lines = [
        f"{about['date']}, {about['cores']} cores; of a core an idle rank takes {shares}.\n",
        "| way | ranks | size | PyTorch (quartiles) | mpi4py | with mpi4py | gloo | x mpi4py | x gloo | load |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        times = " | ".join(format_spread(row.seconds[path]) for path in PATHS)
        ratios = f"{row.ratio('mpi4py'):.2f} | {row.ratio('gloo'):.2f}"
        lines.append(
            f"| {row.way} | {row.ranks} | {format_size(row.size_bytes)} | {times} | {ratios} | {row.load:.1f} |"
        )
    table = "\n".join(lines)
    (folder / "allreduce_mpi.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "allreduce_mpi.md").write_text(table + "\n", encoding="utf-8")
    return table


def main() -> int:
    """Measure with each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--way", action="append", choices=list(WAYS), help="may be repeated; plugin if none is given")
    parser.add_argument("--channel", type=Path, default=Path("output/channel"))
    parser.add_argument("--output", type=Path, default=Path("output/bench"))
    arguments = parser.parse_args()
    rows: list[Measured] = []
    idle: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        for way in arguments.way or ["plugin"]:
            prefix = Path(holder) / way
            prepare(arguments.channel, prefix, way)
            for ranks in arguments.ranks:
                folder = Path(holder) / f"{way}-{ranks}"
                folder.mkdir()
                measured, idle[f"of {ranks} ({way})"] = measure(prefix, way, ranks, SIZES, folder)
                rows += measured
    rows.sort(key=lambda row: (row.ranks, row.size_bytes))
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(write_report(rows, idle, arguments.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
