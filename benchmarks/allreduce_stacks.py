# SPDX-License-Identifier: BSD-3-Clause
"""oneCCL's and ACCL's allreduce beside gloo's: what `channel_tools validate` measures of a stack, with few other cases.

`python -m benchmarks.allreduce_stacks` makes an environment per stack from output/channel, which `channel_tools build
--variant oneccl` and `--variant accl` fill. ACCL runs on the emulator of its FPGA kernels, which simulates each word:
its figures say nothing of a card. Writes allreduce_stacks.json and .md.
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

from benchmarks.allreduce_report import format_size
from channel_tools.environments import activated_environment, create_environment
from channel_tools.matrix import find_stack, load_tree
from channel_tools.system.processes import Deadline
from channel_tools.system.progress import SilentProgress
from channel_tools.system.settings import Tree, find_cache
from channel_tools.validate.distributed.method import DistributedMethod
from channel_tools.validate.model import MethodContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.matrix import Stack
    from channel_tools.validate.model import BandwidthRow, Spread

ROOT = Path(__file__).resolve().parent.parent
SUBDIR = "linux-64"
LIMIT_S = 1800.0
STACKS = ("oneccl", "accl")
_WHOLE = 100
"""MB/s from which they are told without a fraction."""
FEW: dict[str, object] = {"dtypes": ["float32"], "ops": ["SUM"], "ddp": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One size of a stack with so many ranks, and the machine's load average over the minute before the end."""

    stack: str
    ranks: int
    row: BandwidthRow
    load: float


def prepare(stack: Stack, channel: Path, prefix: Path) -> None:
    """An environment at ``prefix`` with what a user of the stack installs from the channel folder."""
    asyncio.run(
        create_environment(
            prefix,
            stack.install,
            [channel.resolve().as_uri()],
            package_cache=find_cache(os.environ) / "packages",
            subdir=SUBDIR,
            progress=SilentProgress(),
            replace=lambda _changes: True,  # one of an earlier run
        )
    )


def measure(stack: Stack, prefix: Path, ranks: int, folder: Path) -> list[Measured]:
    """Every size in one launch of the ranks. Ends the program where the stack did not carry what was measured."""
    folder.mkdir()
    settings = {name: value for name, value in stack.validation.items() if name != "method"}
    context = MethodContext(
        stack=stack.name,
        prefix=prefix,
        variables=activated_environment(prefix, environ=os.environ),
        ranks=ranks,
        options={**settings, **FEW},
        folder=folder,
        deadline=Deadline.after(LIMIT_S),
        progress=SilentProgress(),
    )
    result = DistributedMethod().run(context)
    if failed := [f"{check.name}: {check.found}" for check in result.checks if not check.passed]:
        sys.exit(f"{stack.name} with {ranks} ranks: {'; '.join(failed)}")
    load = os.getloadavg()[0]
    return [Measured(stack=stack.name, ranks=ranks, row=row, load=load) for row in result.bandwidth]


def write_report(rows: Sequence[Measured], folder: Path) -> str:
    """Write allreduce_stacks.json and .md; the table."""
    about = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "cores": os.cpu_count()}
    document = {"schema": 1, **about, "rows": [asdict(row) for row in rows]}
    lines = [
        f"{about['date']}, {about['cores']} cores; MB of tensor per second and rank, medians (quartiles).\n",
        "| stack | ranks | size | its allreduce | gloo | times gloo | load |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for measured in rows:
        rates = f"{_in_words(measured.row.transport)} | {_in_words(measured.row.baseline)} | {measured.row.ratio:.2f}"
        size = format_size(measured.row.size_bytes)
        lines.append(f"| {measured.stack} | {measured.ranks} | {size} | {rates} | {measured.load:.1f} |")
    table = "\n".join(lines)
    (folder / "allreduce_stacks.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "allreduce_stacks.md").write_text(table + "\n", encoding="utf-8")
    return table


def _in_words(rate: Spread) -> str:
    lower, median, upper = (
        f"{value:.0f}" if value >= _WHOLE else f"{value:.3g}" for value in (rate.lower, rate.median, rate.upper)
    )
    return f"{median} ({lower} to {upper})"


def main() -> int:
    """Measure each stack with each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", nargs="+", choices=STACKS, default=STACKS)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--channel", type=Path, default=Path("output/channel"))
    parser.add_argument("--output", type=Path, default=Path("output/bench"))
    arguments = parser.parse_args()
    tree = load_tree(Tree(root=ROOT))
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="channel-tools-bench-") as holder:
        for stack in (find_stack(tree, name) for name in arguments.stacks):
            prefix = Path(holder) / stack.name
            prepare(stack, arguments.channel, prefix)
            for ranks in arguments.ranks:
                rows += measure(stack, prefix, ranks, Path(holder) / f"{stack.name}-{ranks}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    print(write_report(rows, arguments.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
