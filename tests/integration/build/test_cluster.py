# SPDX-License-Identifier: BSD-3-Clause
"""``build --on``: toy packages built by jobs of a real Slurm of two nodes, through Snakemake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.build.remote import read_builds
from channel_tools.system.errors import BuildError, ChannelError
from tests.support.pbs import write_pbs
from tests.support.processes import TEST_TIMEOUT_S, assert_ended, wait_for
from tests.support.programs import program
from tests.support.slurm import Slurm, running_slurm
from tests.support.snakemake import snakemake_folder
from tests.support.toy_cluster import Recipe, Tool, job_of, read_pipe, read_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, as builds that other machines see need one; pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as place:
        yield Path(place)


def test_a_stack_is_built_by_jobs_of_slurm(folder: Path, slurm: Slurm) -> None:
    pipe, cancelled = folder / "pipe", folder / "cancelled"
    os.mkfifo(pipe)
    gcc = folder / "gcc"  # the compiler itself may lie in a home, which no package may name
    gcc.write_text(f'#!/bin/sh\nexec {program("gcc")} "$@"\n')
    gcc.chmod(0o755)
    compiler = f"mkdir $PREFIX/bin; cd $PREFIX/bin; printf '#!/bin/sh\\nexec {gcc} \"$@\"\\n' > gcc; chmod +x gcc"
    compiles = "echo 'int a;' > a.c; $BUILD_PREFIX/bin/gcc -c $SRC_DIR/a.c"
    recipes: dict[str, Recipe] = {
        "base": {"script": f"{compiler}; echo cores=$CPU_COUNT foreign=$(env | grep -c -e SLURM -e site)"},
        "bad": {"script": "echo boom $(cat $PREFIX/share/base); exit 3", "host": ("base",)},
        "held": {"host": ("bad",)},
        "lost": {
            "script": f"{compiles}; if test ! -e {cancelled}; then touch {cancelled}; echo $$ > {pipe}; sleep 1000; fi",
            "build": ("base",),
        },
        "large": {},
    }
    tool = Tool(folder, slurm, recipes, programs=("ccache",), resources={"large": {"memory_mib": 99_000, "minutes": 9}})
    slurm.run("scontrol", "update", "PartitionName=main", "MaxTime=60")  # a job without stated minutes asks for more
    with tool.start("--on", "slurm", "--compiler-cache", "ccache") as process:
        warned = read_until(process, "cannot start: PartitionTimeLimit; it requests cores: 4, memory_mib: 8000")
        slurm.run("scontrol", "update", "PartitionName=main", "MaxTime=UNLIMITED")
        script = read_pipe(pipe)
        slurm.run("scancel", job_of(slurm, "lost"))
        _, said = process.communicate(timeout=TEST_TIMEOUT_S)
    rejected = "SLURM sbatch failed. The error message was 'sbatch: error: Memory specification can not be satisfied; "
    assert warned.count(f"its job was rejected: {rejected}") == 1
    assert "; it requests cores: 4, memory_mib: 99000, minutes: 9; request less under `resources`" in warned
    assert warned.count("cannot start") == 1
    assert process.returncode == BuildError.exit_code, said
    assert "the build script failed" in said
    assert "boom base" in said
    assert "not built because of that: held-1.0" in said
    assert "large-1.0" in said
    assert "its jobs left no result" in said
    assert rejected in said
    assert tool.published() == ["base", "lost"]
    assert_ended(script)
    cores = min(4, len(os.sched_getaffinity(0)))  # no more than the node has, whatever its Slurm says
    assert f"cores={cores} foreign=0" in tool.log("base")
    assert "ccache: no compiler in the build environment" in tool.log("base")
    assert re.search(r"Hits: +1 / 1 \(100.0%\)", tool.log("lost"))  # of what the cancelled job had compiled
    asked = slurm.run("squeue", "--states=all", "--noheader", "--sort=i", "--format=%k %m %l")
    assert [line.split()[1:] for line in asked.splitlines() if "_lost-" in line] == [
        ["8000M", "4:00:00"],
        ["16000M", "8:00:00"],
    ]
    assert sum("_bad-" in line for line in asked.splitlines()) == 1


def test_every_variant_is_built_by_a_job_of_its_own(folder: Path) -> None:
    pairs = {"python": ("3.11", "3.13"), "pytorch": ("2.12", "2.13")}
    # Snakemake begins with jobs of larger input; the name makes what builds wait for larger than what is to be admitted
    base = f"base-{'x' * 90}"
    recipes: dict[str, Recipe] = {base: {}, "plugin": {"script": ": $python; echo for $pytorch", "host": (base,)}}
    tool = Tool(folder, None, recipes, variants=pairs)
    here = folder / "here"  # a profile without an executor runs the same workflow on this machine
    here.mkdir()
    (here / "config.yaml").write_text("cores: 1\n")
    said = tool.build("--all-variants", "--on", here, "--jobs", "1")
    assert "5 to build, 0 in the channel already, 0 variants that cannot be built" in said
    steps = re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", tool.said_by_snakemake())
    assert steps == ["build", "admit"] * 5 + ["all"]  # in the channel before the next build begins
    assert tool.published() == [base, *["plugin"] * 4]
    logs = sorted(tool.tree.glob("output/logs/plugin-1.0-*_0.log"))
    found = [(log.name[11:16], re.findall("^for (.*)$", log.read_text(), re.MULTILINE)) for log in logs]
    assert sorted(found) == [(f"py3{minor}", [pytorch]) for minor in (11, 13) for pytorch in pairs["pytorch"]]


def test_a_job_of_pbs_that_is_deleted_is_submitted_again(folder: Path, slurm: Slurm) -> None:
    pipe, deleted = folder / "pipe", folder / "deleted"
    os.mkfifo(pipe)
    script = f"if test ! -e {deleted}; then touch {deleted}; echo $$ > {pipe}; sleep 1000; fi"
    pbs = write_pbs(folder / "pbs", slurm)
    tool = Tool(folder, None, {"base": {"script": script}}, pbs=pbs)
    with tool.start("--on", "pbs") as process:
        deleted_script = read_pipe(pipe)
        (job,) = slurm.jobs()
        subprocess.run([pbs / "qdel", f"{job}.stand-in"], check=True)
        _, said = process.communicate(timeout=TEST_TIMEOUT_S)
    assert process.returncode == 0, said
    assert tool.published() == ["base"]
    assert_ended(deleted_script)


def test_killed_runs_lose_nothing_and_build_nothing_twice(folder: Path, slurm: Slurm) -> None:
    pipe, go, built = folder / "pipe", folder / "go", folder / "built"
    os.mkfifo(pipe)
    os.mkfifo(go)
    slow: Recipe = {"script": f"echo $$ > {pipe}; read line < {go}; echo $$ $CPU_COUNT >> {built}"}
    tool = Tool(folder, slurm, {"slow": slow}, resources={"slow": {"cores": 1}})

    with tool.start("--on", tool.profile) as first:
        script = read_pipe(pipe)
        refused = tool.build("--on", tool.profile, code=ChannelError.exit_code)
        assert f"in use by process {first.pid}" in refused
        first.kill()
    assert_ended(script)  # Snakemake hears of the driver's end and cancels its jobs
    wait_for(lambda: not slurm.jobs())

    with tool.start("--on", tool.profile) as second:
        script = read_pipe(pipe)
        os.kill(snakemake_of(second), signal.SIGKILL)
        _, said = second.communicate(timeout=TEST_TIMEOUT_S)
    assert second.returncode == BuildError.exit_code
    assert "its job left no result" in said
    survivor = job_of(slurm, "slow")

    with tool.start("--on", tool.profile) as third:
        wait_for(lambda: any(slurm.is_running(job) for job in slurm.jobs() if job != survivor))
        slurm.kill_controller()
        go.write_text("on\n")
        results = tool.tree / "output" / "snakemake" / "results"
        wait_for(lambda: list(results.glob("slow-*.built")) != [])
        slurm.return_controller()
        wait_for(lambda: survivor not in slurm.jobs())
        third.kill()  # before or while the package is added to the channel

    tool.build("--on", tool.profile)
    assert tool.published() == ["slow"]
    assert built.read_text() == f"{script[0]} 1\n"  # with the core that was stated


def snakemake_of(driver: subprocess.Popen[str]) -> int:
    """The id of its Snakemake; the driver may be asking squeue at the same time."""
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    (found,) = [int(child) for child in children if b"--snakefile" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return found


def test_an_emitted_workflow_builds_with_snakemake_alone_whatever_the_clocks_say(folder: Path) -> None:
    tool = Tool(folder, None, {"base": {}, "upper": {"host": ("base",)}})
    snakefile = tool.build("--emit", "snakemake", "-o", folder / "workflow").splitlines()[0]
    builds = folder / "workflow" / "builds.json"
    results = folder / "workflow" / "results"
    # the nodes' clocks are wrong: what they leave is of the future, for the other package of the past
    python = folder / "python"
    wrong_clocks = f"touch -d 2050-01-01 {results}/base-*.built; touch -cd 2001-01-01 {results}/upper-*.built"
    python.write_text(f'#!/bin/sh\n{sys.executable} "$@" || exit\ncase "$*" in *build.node*) {wrong_clocks};; esac\n')
    python.chmod(0o755)
    builds.write_text(json.dumps({**json.loads(builds.read_text()), "python": str(python)}))
    command = [str(snakemake_folder() / "snakemake"), "--snakefile", snakefile, "--cores", "2"]
    for expected in ("4 of 5 steps", "Nothing to be done"):
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TEST_TIMEOUT_S)
        assert made.returncode == 0, made.stderr
        assert expected in made.stderr
    assert tool.published() == ["base", "upper"]


def test_a_build_here_takes_over_what_a_cluster_had_built(folder: Path) -> None:
    built = folder / "built"
    recipes: dict[str, Recipe] = {
        "base": {"script": f"echo base >> {built}"},
        "upper": {"script": f"echo upper >> {built}", "host": ("base",)},
    }
    tool = Tool(folder, None, recipes)
    tool.build("--emit", "snakemake", "-o", folder / "workflow")
    builds = folder / "workflow" / "builds.json"
    (base,) = [job.stem for job in read_builds(builds).jobs if job.stem.startswith("base-")]
    node = [sys.executable, "-m", "channel_tools.build.node", str(builds), base, "2"]
    subprocess.run(node, cwd=folder, check=True, timeout=TEST_TIMEOUT_S)
    nodes = tool.tree / "output" / "work" / "nodes"
    assert len(list(nodes.glob("*/finished.json"))) == 1
    said = tool.build()
    assert f"{base}: added to the channel, a cluster's job has built it" in said
    assert built.read_text() == "base\nupper\n"
    assert tool.published() == ["base", "upper"]
    assert list(nodes.iterdir()) == []
