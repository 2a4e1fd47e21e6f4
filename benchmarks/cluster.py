# SPDX-License-Identifier: BSD-3-Clause
"""Builds on a cluster, measured: ``python -m benchmarks.cluster [toys] [tree]``.

- toys: twelve builds that sleep for up to 80 s, in three layers, on a Slurm of two nodes of eight cores each on this
  machine: what a job takes besides its build
- tree: plan, workflow and Snakemake's dry run of 2,000 packages

The exit status is 1 where an aim is missed. The builds of the toys take no processor time, so that two cores can stand
for sixteen; what runs around them does take it, and is part of what is measured.
"""

from __future__ import annotations

import json
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

from benchmarks.figures import Figure, print_figures
from channel_tools.build.remote import BUILDS_FILE, read_builds
from channel_tools.build.usage import read_usage
from channel_tools.channel import open_channel
from tests.support.slurm import Slurm, running_slurm
from tests.support.snakemake import snakemake_folder
from tests.support.toy_cluster import Recipe, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.build.remote import RemoteBuilds

_LAYERS, _SLEEPS_S = 3, (20, 40, 60, 80)
_PACKAGES = 2000
_SEED = 7
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


def toys() -> list[Figure]:
    """What the sleeping builds' jobs on the cluster took besides them.

    A package is in the channel after Slurm was asked and the package was added, of which the least is the time that
    adding takes: then Slurm was asked at once. Slurm's own times are whole seconds.
    """
    recipes = toy_recipes()
    asked = {name: {"cores": 1, "memory_mib": 2000, "minutes": 10} for name in recipes}
    with tempfile.TemporaryDirectory(prefix="cluster-") as folder, running_slurm() as slurm:
        tool = Tool(Path(folder), slurm, recipes, resources=asked)
        run = measured(tool.start("--on", "slurm"))
        file = tool.tree / "output" / "snakemake" / BUILDS_FILE
        builds, written = read_builds(file), file.stat().st_mtime
        times, ends = times_of(tool, builds), job_ends(slurm)
    stems = {job.file_name: job.stem for job in builds.jobs}
    waits_for = {job.stem: [stems[name] for name in job.waits_for if name in stems] for job in builds.jobs}
    ready = {stem: max([written, *(times[name].admitted for name in waits_for[stem])]) for stem in times}
    return [
        figure("wall time", run.seconds),
        figure("processor, without the jobs", run.cpu_s),
        figure("before a build, median", statistics.median(times[stem].began - ready[stem] for stem in times)),
        figure(
            "from a build's end to its job's, median",
            statistics.median(ends[stem] - times[stem].ended for stem in times),
        ),
        figure("adding a package to the channel", min(times[stem].admitted - ends[stem] for stem in times)),
        figure("from the workflow to the last package", max(build.admitted for build in times.values()) - written),
    ]


def figure(name: str, seconds: float) -> Figure:
    """One of the toys' figures, which no aim limits."""
    return Figure(name=f"12 toys: {name}", value=seconds, unit="s", limit=1e4, at_most=True)


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


def main(wanted: Sequence[str]) -> int:
    """Measure what is named, else everything."""
    figures: list[Figure] = []
    if not wanted or "toys" in wanted:
        figures += toys()
    if not wanted or "tree" in wanted:
        figures += tree()
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
