# SPDX-License-Identifier: BSD-3-Clause
"""Builds on a cluster, measured: ``python -m benchmarks.cluster [toys] [tree] [nodes]``.

- toys: forty builds that sleep, in four layers, on a Slurm of two nodes of eight cores each on this machine, beside the
  ideal (the longest chain of what the builds themselves took) and beside the same packages built at home; also what a
  job takes over its build: from the moment it could begin, and until the channel has the package
- tree: plan, workflow and Snakemake's dry run of 2,000 packages
- nodes: how long a made-up plan of 2,000 builds takes on 1 to 256 nodes, simulated, beside its longest chain

Prints tables, and draws the last one as output/bench/cluster.svg; the exit status is 1 where an aim is missed. The
builds of the toys take no processor time, so that two cores can stand for sixteen; what runs around them does take it,
and is part of what is measured.
"""

from __future__ import annotations

import heapq
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, print_figures
from channel_tools.build.forecast import time_left
from channel_tools.build.model import BuildJob
from channel_tools.build.remote import BUILDS_FILE, read_builds
from channel_tools.build.usage import read_usage
from channel_tools.channel import open_channel
from channel_tools.system.pages import Bar, BarGroup, bar_chart
from tests.support.slurm import running_slurm
from tests.support.snakemake import snakemake_folder
from tests.support.toy_cluster import Recipe, Tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.build.remote import RemoteBuilds

_LAYERS, _IN_LAYER, _SLEEP_S = 4, 10, 30
_CORES = 16
_PACKAGES = 2000
_NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_SEED = 7
_CHART = Path("output", "bench", "cluster.svg")
_CHART_FROM = 8
"""With fewer nodes the bars would leave no room for the others."""
_MIB = 1 << 20


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
        for number in range(_IN_LAYER):
            before = [f"toy{layer - 1}-{(number + step) % _IN_LAYER}" for step in (0, 3)] if layer else []
            recipes[f"toy{layer}-{number}"] = {"script": f"sleep {_SLEEP_S}", "host": tuple(before)}
    return recipes


def measured(process: subprocess.Popen[str]) -> Run:
    """Wait for the command, which has to succeed."""
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    said, errors = process.communicate()
    if process.returncode != 0:
        sys.exit(f"{said}\n{errors}")
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


def ideal_s(durations: Mapping[str, float], recipes: Mapping[str, Recipe]) -> float:
    """The larger of the longest chain and the work over the cores."""
    jobs = [job(name, durations[name], recipe.get("host", ())) for name, recipe in recipes.items()]
    return max(time_left(jobs, {}) or 0.0, sum(durations.values()) / _CORES)


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
    for stem in (one.stem for one in builds.jobs):
        ended = (builds.places.logs / f"{stem}.log").stat().st_mtime
        began = ended - took[stem.rsplit("-", 2)[0]]
        times[stem] = Times(began=began, ended=ended, admitted=rows[f"{stem}.conda"]["indexed_timestamp"] / 1000)
    return times


def free_core_s(times: Sequence[Times], since: float) -> float:
    """The first moment from ``since`` on at which fewer of these builds run than there are cores."""
    moments = [since, *sorted(one.ended for one in times if one.ended > since)]
    return next(now for now in moments if sum(one.began <= now < one.ended for one in times) < _CORES)


def waits_of(
    times: Mapping[str, Times], waits_for: Mapping[str, Sequence[str]], written: float
) -> tuple[dict[str, float], dict[str, float]]:
    """What each job took over its build, by stem: before it, once it could begin, and after it, until it was in.

    A build can begin when the workflow is written, what it waits for is in the channel and a core is free.
    """
    before, after = {}, {}
    for stem, own in times.items():
        others = [one for name, one in times.items() if name != stem]
        ready = max([written, *(times[name].admitted for name in waits_for[stem])])
        before[stem] = max(0.0, own.began - free_core_s(others, ready))
        after[stem] = own.admitted - own.ended
    return before, after


def waits_figures(tool: Tool) -> list[Figure]:
    """What jobs took over their builds: before, after, and both of the same job.

    Those that wait for no other begin once Snakemake has started, which a run pays once: they have a row of their own.
    """
    file = tool.tree / "output" / "snakemake" / BUILDS_FILE
    builds = read_builds(file)
    stems = {one.file_name: one.stem for one in builds.jobs}
    waits_for = {one.stem: [stems[name] for name in one.waits_for if name in stems] for one in builds.jobs}
    before, after = waits_of(times_of(tool, builds), waits_for, written=file.stat().st_mtime)
    both = {stem: before[stem] + after[stem] for stem in before}
    return [
        figure("cluster: before a build, median", statistics.median(before.values())),
        figure("cluster: before a build, the most", max(before.values())),
        figure("cluster: after a build, median", statistics.median(after.values())),
        figure("cluster: after a build, the most", max(after.values())),
        figure("cluster: a job over its build, median", statistics.median(both.values()), limit=3),
        figure("cluster: a job over its build, the most", max(both[stem] for stem in both if waits_for[stem]), limit=3),
        figure("cluster: the same with Snakemake's start", max(both.values())),
    ]


def figure(name: str, value: float, *, unit: str = "s", limit: float = 1e4) -> Figure:
    """One of the toys' figures, which is not to be above the limit."""
    return Figure(name=f"40 toys, {name}", value=value, unit=unit, limit=limit, at_most=True)


def toys() -> list[Figure]:
    """The forty builds on the cluster and at home, each beside its ideal."""
    recipes = toy_recipes()
    asked = {name: {"cores": 1, "memory_mib": 2000, "minutes": 10} for name in recipes}
    figures = []
    for where in ("cluster", "home"):
        with tempfile.TemporaryDirectory(prefix="cluster-") as place, running_slurm() as slurm:
            tool = Tool(Path(place), slurm, recipes, resources=asked)
            words = ("--on", "slurm") if where == "cluster" else ("--jobs", str(_CORES))
            run = measured(tool.start(*words))
            ideal = ideal_s(durations_of(tool), recipes)
            waits = waits_figures(tool) if where == "cluster" else []
        overhead = (run.seconds - ideal) / _LAYERS
        figures += [
            figure(f"{where}: wall time", run.seconds),
            figure(f"{where}: processor", run.cpu_s),
            figure(f"{where}: ideal", ideal),
            figure(f"{where}: per cent of the ideal", 100 * run.seconds / ideal, unit="%", limit=115),
            figure(f"{where}: over a layer's builds, a run's start and end with it", overhead),
            *waits,
        ]
    return figures


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
    with tempfile.TemporaryDirectory(prefix="cluster-") as place:
        tool = Tool(Path(place), None, recipes)
        written = measured(tool.start("--emit", "snakemake", "-o", Path(place) / "workflow"))
        snakefile = Path(place) / "workflow" / "Snakefile"
        dry = [str(snakemake_folder() / "snakemake"), "--snakefile", str(snakefile), "--dry-run", "--quiet"]
        process = subprocess.Popen(dry, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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


def simulated_s(jobs: Sequence[BuildJob], nodes: int) -> float:
    """How long the builds take on ``nodes`` that build one at a time each, the longest chain first."""
    waiting = {one.file_name: set(one.waits_for) for one in jobs}
    followers: dict[str, list[str]] = {name: [] for name in waiting}
    for name, others in waiting.items():
        for other in others:
            followers[other].append(name)
    durations = {one.file_name: one.expected_s or 0.0 for one in jobs}
    below: dict[str, float] = {}
    for one in reversed(jobs):  # what waits for a build comes after it
        name = one.file_name
        below[name] = durations[name] + max((below[other] for other in followers[name]), default=0.0)
    ready = [(-below[name], name) for name, others in waiting.items() if not others]
    heapq.heapify(ready)
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < nodes:
            _, name = heapq.heappop(ready)
            heapq.heappush(running, (now + durations[name], name))
        now, ended = heapq.heappop(running)
        for name in followers[ended]:
            waiting[name].discard(ended)
            if not waiting[name]:
                heapq.heappush(ready, (-below[name], name))
    return now


def made_up_plan() -> list[BuildJob]:
    """2,000 builds of some minutes each, a few of hours, as packages of this field are."""
    random_ = random.Random(_SEED)  # noqa: S311 - a made-up plan
    return [
        job(f"p{number}", random_.lognormvariate(4.6, 1.2), [f"p{other}" for other in chain_of(random_, number)])
        for number in range(_PACKAGES)
    ]


def nodes() -> list[Figure]:
    """Prints hours by number of nodes; the figure is how much of the longest chain 256 nodes take."""
    jobs = made_up_plan()
    chain, work = time_left(jobs, {}) or 0.0, sum(one.expected_s or 0.0 for one in jobs)
    middle = statistics.median(one.expected_s or 0.0 for one in jobs)
    print(f"{len(jobs)} builds, {work / 3600:.1f} h in all, half of them under {middle / 60:.1f} min")
    print(f"{'nodes':>6} {'hours':>8} {'at least':>9} {'busy':>6}")
    times = {count: simulated_s(jobs, count) for count in _NODES}
    for count, seconds in times.items():
        least = max(chain, work / count)
        print(f"{count:6} {seconds / 3600:8.2f} {least / 3600:9.2f} {100 * work / count / seconds:5.0f}%")
    _CHART.parent.mkdir(parents=True, exist_ok=True)
    _CHART.write_text(draw(times, chain), encoding="utf-8")
    share = 100 * times[_NODES[-1]] / chain
    return [Figure(name="256 nodes, simulated: per cent of the chain", value=share, unit="%", limit=115, at_most=True)]


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
    parts = {"toys": toys, "tree": tree, "nodes": nodes}
    return print_figures([figure for name in wanted or parts for figure in parts[name]()])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
