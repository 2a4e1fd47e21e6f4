# SPDX-License-Identifier: BSD-3-Clause
"""One rank of the SwitchML validation: a plain gloo script that also records what carried its allreduces.

Runs under fork_ranks.py or torchrun in the environment that is being validated, so it uses only torch, the standard
library, torch_switchml for the counters, and the script beside it. It decides nothing: it writes its results to
``rank-N.json``, which its starter checks.

Usage: switchml_allreduce.py PLAN.json (see channel_tools.validate.switchml.method).
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from channel_tools.validate.workers import reductions
else:
    import reductions  # before torch: it ties this process to its launcher

import torch
import torch.distributed as dist


@dataclass(frozen=True, kw_only=True)
class SwitchmlWork(reductions.RankWork):
    """The shared plan, and each rank's source address; empty for that of its host."""

    local_addresses: list[str]


Counts = Counter[tuple[str, str]]
"""The plugin's counters, of which only increases are kept: jobs and elements by dtype, fallbacks, failed jobs."""


def read_stats() -> dict[str, object]:
    """The plugin's own report of this process."""
    import torch_switchml  # noqa: PLC0415  (a clear ImportError of this rank, not of the whole script)

    stats: dict[str, object] = torch_switchml.stats()
    return stats


def read_counts() -> Counts:
    """The counters of the plugin's report."""
    stats = json.loads(json.dumps(read_stats()))
    counts = Counter({("fallbacks", reason): count for reason, count in stats["fallbacks"].items()})
    for dtype, row in stats["delegated"].items():
        counts["jobs", dtype], counts["elements", dtype] = row["jobs"], row["elements"]
    counts["failed_jobs", ""] = stats["failed_jobs"]
    return counts


def counts_document(counts: Counts) -> dict[str, object]:
    """The counters in the form that the checks read."""
    by_kind: dict[str, dict[str, int]] = {kind: {} for kind in ("jobs", "elements", "fallbacks", "failed_jobs")}
    for (kind, name), count in counts.items():
        by_kind[kind][name] = count
    return {**by_kind, "failed_jobs": counts["failed_jobs", ""]}


class SwitchmlRank(reductions.Rank):
    """The default group, which SwitchML carries if it can, and a second one that is plain gloo."""

    def __init__(self, plan: SwitchmlWork) -> None:
        self.plain = dist.new_group(backend="gloo")
        super().__init__(plan, self.plain)

    def run(self) -> dict[str, object]:
        """Run all cases, then all measurements."""
        cases = [self.run_case(case) for case in self.plan.cases]
        speeds = [self._measure(speed) for speed in self.plan.speeds]
        return {"cases": cases, "speeds": speeds}

    def run_case(self, case: reductions.Case) -> dict[str, object]:
        """Run a case and add what the plugin counted for it."""
        before = read_counts()
        result = super().run_case(case)
        return {**result, "counts": counts_document(read_counts() - before)}

    def _measure(self, speed: reductions.Speed) -> dict[str, object]:
        groups = {"default": None, "plain": self.plain}
        counts: dict[str, Counts] = {name: Counter() for name in groups}
        last = read_counts()

        def count(name: str) -> None:
            nonlocal last
            now = read_counts()
            counts[name] += now - last
            last = now

        paths = {
            name: lambda tensor, group=group: dist.all_reduce(tensor, group=group) for name, group in groups.items()
        }
        results = self.measure(speed, paths, barrier=lambda: dist.barrier(group=self.plain), after_call=count)
        for name, path in results["paths"].items():
            path["counts"] = counts_document(counts[name])
        return results


def main() -> None:
    """Run the plan named on the command line as the rank that the launcher made this process."""
    plan = reductions.read_plan(Path(sys.argv[1]), SwitchmlWork)
    rank = int(os.environ["RANK"])
    reductions.report_to(plan.folder, rank)
    if plan.local_addresses:
        os.environ["SWITCHML_LOCAL_ADDRESS"] = plan.local_addresses[rank]
    if plan.is_on_hosts:
        reductions.use_interface_towards(os.environ["MASTER_ADDR"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=plan.group_timeout_s))
    result = {**SwitchmlRank(plan).run(), **reductions.describe_rank(), "stats": read_stats()}
    dist.destroy_process_group()
    reductions.write_result(plan.folder / f"rank-{rank}.json", result)


if __name__ == "__main__":
    main()
