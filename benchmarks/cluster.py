# SPDX-License-Identifier: BSD-3-Clause
"""Builds on a cluster, measured: ``python -m benchmarks.cluster [toys] [tree] [nodes]``.

- toys: twelve builds that sleep for up to 80 s, in three layers, on a Slurm of two nodes of eight cores each on this
  machine: what a job takes besides its build, and whether the simulation with these figures says how long the run took
- tree: plan, workflow and Snakemake's dry run of 2,000 packages
- nodes: how long a made-up plan of 2,000 builds (the median 3 minutes, the longest 2 hours) takes on 1 to 256 nodes,
  simulated with the figures of the toys, beside the ideal

Prints tables, and draws the last one as output/bench/cluster.svg; the exit status is 1 where an aim is missed. The
builds of the toys take no processor time, so that two cores can stand for sixteen; what runs around them does take it,
and is part of what is measured.
"""

from __future__ import annotations

import json
import math
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.cluster_simulation import Overheads, shares, simulated_s
from benchmarks.figures import Figure, print_figures
from channel_tools.build.forecast import time_left
from channel_tools.build.model import BuildJob
from channel_tools.build.remote import BUILDS_FILE, read_builds
from channel_tools.build.usage import read_usage
from channel_tools.channel import open_channel
from channel_tools.system.charts import Bar, BarGroup, bar_chart
from tests.support.slurm import Slurm, running_slurm
from tests.support.snakemake import snakemake_folder
from tests.support.toy_cluster import Recipe, Tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.build.remote import RemoteBuilds

_LAYERS, _SLEEPS_S = 3, (20, 40, 60, 80)
_CORES = 16
_PACKAGES = 2000
_NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SEED = 7
_CHART = Path("output", "bench", "cluster.svg")
_CHART_FROM = 8
"""With fewer nodes the bars would leave no room for the others."""
_MIB = 1 << 20
_MEDIAN_S, _LONGEST_S, _SPREAD = 180.0, 7200.0, 1.15
"""Of the made-up plan's builds: half take less than the first, none more than the second (log-normally distributed)."""
_OVERHEADS = Overheads(start_s=6.0, end_s=2.0, add_s=2.0)
"""Of a job on an idle machine, for a simulation without a measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What a command took: wall and processor seconds of it and its children, and the most memory of one of them."""

    seconds: float
    cpu_s: float
    peak_mib: float


def toy_recipes() -> dict[str, Recipe]:
    """Layers of builds that sleep; each waits for two of the layer before."""
    recipes: dict[str, Recipe] = {}
    for layer in range(_LAYERS):
        for number, seconds in enumerate(_SLEEPS_S):
            before = [f"toy{layer - 1}-{(number + step) % len(_SLEEPS_S)}" for step in (0, 3)] if layer else []
            recipes[f"toy{layer}-{number}"] = {"script": f"sleep {seconds}", "host": tuple(before)}
    return recipes


def measured(process: subprocess.Popen[str]) -> Run:
    """Wait for the command, which has to succeed."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    output, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{output}\n{errors}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds=time.monotonic() - started, cpu_s=cpu_s, peak_mib=after.ru_maxrss * 1024 / _MIB)


def job(name: str, expected_s: float, waits_for: Sequence[str]) -> BuildJob:
    """A build as the plan would have it."""
    return BuildJob(
        file_name=f"{name}.conda",
        subdir="noarch",
        recipe_folder=Path(),
        waits_for=tuple(f"{other}.conda" for other in waits_for),
        expected_s=expected_s,
    )


def durations_of(tool: Tool) -> dict[str, float]:
    """What each build itself took, by package."""
    known = read_usage(open_channel(tool.tree / "output" / "channel"))
    return {key.rsplit("-", 2)[0]: usage.seconds for key, usage in known.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """When a build began and ended on its node, and when the channel had its package: seconds of one clock."""

    began: float
    ended: float
    admitted: float


def times_of(tool: Tool, builds: RemoteBuilds) -> dict[str, Times]:
    """The times of a workflow's jobs, by stem: the log's last line, what the build took, the index's own time.

    The files that the jobs leave say nothing of it, since Snakemake touches them.
    """
    channel = tool.tree / "output" / "channel"
    rows = json.loads((channel / "noarch" / "repodata.json").read_bytes())["packages.conda"]
    took, times = durations_of(tool), {}
    for stem in (job.stem for job in builds.jobs):
        ended = (builds.places.logs / f"{stem}.log").stat().st_mtime
        began = ended - took[stem.rsplit("-", 2)[0]]
        times[stem] = Times(began=began, ended=ended, admitted=rows[f"{stem}.conda"]["indexed_timestamp"] / 1000)
    return times


def job_ends(slurm: Slurm) -> dict[str, float]:
    """When Slurm's jobs ended, by stem: seconds of the clock of Times."""
    lines = slurm.run("squeue", "--states=all", "--noheader", "--format=%k %e").splitlines()
    ends = dict(line.removeprefix("rule_build_wildcards_").split() for line in lines)
    return {stem: datetime.fromisoformat(end).astimezone().timestamp() for stem, end in ends.items()}


def overheads_of(
    times: Mapping[str, Times], ends: Mapping[str, float], waits_for: Mapping[str, Sequence[str]], written: float
) -> Overheads:
    """What jobs took besides their builds; there are more cores than builds.

    The first two are medians. A package is in the channel after Slurm was asked and the package was added, of which the
    least is the time that adding takes: then Slurm was asked at once. Slurm's own times are whole seconds.
    """
    ready = {stem: max([written, *(times[name].admitted for name in waits_for[stem])]) for stem in times}
    return Overheads(
        start_s=statistics.median(times[stem].began - ready[stem] for stem in times),
        end_s=max(0.0, statistics.median(ends[stem] - times[stem].ended for stem in times)),
        add_s=max(0.0, min(times[stem].admitted - ends[stem] for stem in times)),
    )


def toys() -> tuple[list[Figure], Overheads]:
    """The sleeping builds on the cluster, and what their jobs took besides."""
    recipes = toy_recipes()
    asked = {name: {"cores": 1, "memory_mib": 2000, "minutes": 10} for name in recipes}
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder, running_slurm() as slurm:
        tool = Tool(Path(folder), slurm, recipes, resources=asked)
        run = measured(tool.start("--on", "slurm"))
        file = tool.tree / "output" / "snakemake" / BUILDS_FILE
        builds, written = read_builds(file), file.stat().st_mtime
        times, took, ends = times_of(tool, builds), durations_of(tool), job_ends(slurm)
    stems = {job.file_name: job.stem for job in builds.jobs}
    waits_for = {job.stem: [stems[name] for name in job.waits_for if name in stems] for job in builds.jobs}
    overheads = overheads_of(times, ends, waits_for, written)
    plan = [job(name, took[name], recipe.get("host", ())) for name, recipe in recipes.items()]
    whole = max(build.admitted for build in times.values()) - written
    simulated = simulated_s(plan, _CORES, at_once=100, overheads=overheads)
    return [
        figure("wall time", run.seconds),
        figure("processor, without the jobs", run.cpu_s),
        figure("longest chain of builds", time_left(plan, {}) or 0.0),
        figure("before a build, median", overheads.start_s),
        figure("from a build's end to its job's, median", overheads.end_s),
        figure("adding packages to the channel", overheads.add_s),
        figure("from the workflow to the last package", whole),
        figure("the same, simulated", simulated),
        figure("the simulation's error", 100 * abs(simulated - whole) / whole, unit="%", limit=15),
    ], overheads


def figure(name: str, value: float, *, unit: str = "s", limit: float = 1e4) -> Figure:
    """One of the toys' figures, which is not to be above the limit."""
    return Figure(name=f"12 toys: {name}", value=value, unit=unit, limit=limit, at_most=True)


def chain_of(random_: random.Random, number: int) -> list[int]:
    """What package ``number`` waits for: up to two of the fifty before it."""
    before = range(max(0, number - 50), number)
    return sorted(random_.sample(before, k=min(len(before), random_.choice((0, 1, 1, 2)))))


def tree() -> list[Figure]:
    """Plan, workflow and dry run of a generated tree."""
    random_ = random.Random(_SEED)  # noqa: S311 - a made-up tree
    recipes: dict[str, Recipe] = {
        f"p{number}": {"host": tuple(f"p{other}" for other in chain_of(random_, number))} for number in range(_PACKAGES)
    }
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder:
        tool = Tool(Path(folder), None, recipes)
        written = measured(tool.start("--emit", "snakemake", "-o", Path(folder) / "workflow"))
        snakefile = Path(folder) / "workflow" / "Snakefile"
        dry = [str(snakemake_folder() / "snakemake"), "--snakefile", str(snakefile), "--dry-run", "--quiet"]
        process = subprocess.Popen(dry, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        looked = measured(process)
    peak = max(written.peak_mib, looked.peak_mib)
    name = f"{_PACKAGES} packages"
    return [
        Figure(name=f"{name}: plan and workflow", value=written.seconds, unit="s", limit=30, at_most=True),
        Figure(name=f"{name}: plan and workflow, processor", value=written.cpu_s, unit="s", limit=30, at_most=True),
        Figure(name=f"{name}: Snakemake's dry run", value=looked.seconds, unit="s", limit=30, at_most=True),
        Figure(name=f"{name}: dry run, processor", value=looked.cpu_s, unit="s", limit=30, at_most=True),
        Figure(name=f"{name}: the most memory of one process", value=peak, unit="MiB", limit=1024, at_most=True),
    ]


def made_up_plan() -> list[BuildJob]:
    """2,000 builds with durations as packages of this field have."""
    random_ = random.Random(_SEED)  # noqa: S311 - a made-up plan
    return [
        job(
            f"p{number}",
            min(_LONGEST_S, random_.lognormvariate(math.log(_MEDIAN_S), _SPREAD)),
            [f"p{other}" for other in chain_of(random_, number)],
        )
        for number in range(_PACKAGES)
    ]


def nodes(overheads: Overheads) -> list[Figure]:
    """Prints hours by number of nodes; the figure is the most that any of them takes of its ideal."""
    jobs = made_up_plan()
    seconds = [job.expected_s or 0.0 for job in jobs]
    chain, work = time_left(jobs, {}) or 0.0, sum(seconds)
    print(
        f"{len(jobs)} builds, {work / 3600:.1f} h in all, half of them under {statistics.median(seconds) / 60:.1f} min,"
        f" the longest {max(seconds) / 3600:.1f} h; of a job besides: {overheads.start_s:.1f} s before its build,"
        f" {overheads.end_s:.1f} s after it, {overheads.add_s:.1f} s to add packages"
    )
    print(f"{'nodes':>6} {'hours':>8} {'ideal':>8} {'share':>6} {'busy':>6}")
    times = shares(jobs, _NODES, overheads)
    for count, (took, ideal) in times.items():
        busy = 100 * work / count / took
        print(f"{count:6} {took / 3600:8.2f} {ideal / 3600:8.2f} {100 * took / ideal:5.0f}% {busy:5.0f}%")
    _CHART.parent.mkdir(parents=True, exist_ok=True)
    _CHART.write_text(draw({count: took for count, (took, _) in times.items()}, chain), encoding="utf-8")
    most = max(100 * took / ideal for took, ideal in times.values())
    return [
        Figure(name="2,000 builds, simulated: of the ideal, at most", value=most, unit="%", limit=115, at_most=True)
    ]


def draw(times: Mapping[int, float], chain: float) -> str:
    """The chart: hours by number of nodes, and the longest chain as a line."""
    bars = [
        Bar(label=f"{count} nodes", value=seconds / 3600, figure=f"{seconds / 3600:.1f} h", look="own")
        for count, seconds in times.items()
        if count >= _CHART_FROM
    ]
    title = f"{_PACKAGES:,} builds on more and more nodes, simulated"
    listed = ", ".join(f"{bar.label} {bar.figure}" for bar in bars)
    line = f"the longest chain takes {chain / 3600:.1f} h"
    groups = [BarGroup(label=f"Hours; dashed: {line}", bars=tuple(bars))]
    return f"{bar_chart('nodes', title, groups, description=f'{listed}; {line}.', reference=chain / 3600)}\n"


def main(wanted: Sequence[str]) -> int:
    """Measure what is named, else everything."""
    figures: list[Figure] = []
    overheads = _OVERHEADS
    if not wanted or "toys" in wanted:
        figures, overheads = toys()
    if not wanted or "tree" in wanted:
        figures += tree()
    if not wanted or "nodes" in wanted:
        figures += nodes(overheads)
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
