# SPDX-License-Identifier: BSD-3-Clause
"""``build --on``: toy packages built by jobs of a real Slurm of two nodes, through Snakemake."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import pytest
import yaml

from channel_tools.channel import open_channel, published_packages, verify_channel
from channel_tools.system.errors import BuildError, ChannelError
from tests.support.processes import PATIENCE_S, assert_ended
from tests.support.slurm import Slurm, running_slurm
from tests.support.snakemake import snakemake_folder

pytestmark = pytest.mark.integration

LIMIT_S = 240
_PROFILE = {
    "executor": "slurm",
    "jobs": 4,
    "config": ["cores=2", "mem_mb=1000", "runtime=10"],
    "set-threads": {"build": "1 if wildcards.stem.startswith('slow-') else 2"},
    "slurm-init-seconds-before-status-checks": 1,
    "slurm-no-account": True,
    "slurm-status-command": "squeue",
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as running:
        yield running


class Recipe(TypedDict, total=False):
    """A line of its script, and what of the other toys is in its host environment."""

    script: str
    host: tuple[str, ...]


class Tool:
    """The command line in a tree of toy recipes, with the cluster's programs on its PATH."""

    def __init__(self, folder: Path, slurm: Slurm | None, recipes: Mapping[str, Recipe]) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.profile = folder / "profile"
        clients = [] if slurm is None else [str(slurm.bin)]
        self._path = os.pathsep.join([str(snakemake_folder()), *clients, os.environ["PATH"]])
        self._write("profile/config.yaml", yaml.safe_dump(_PROFILE))
        for subdir in ("noarch", "linux-64"):
            self._write(f"foundation/{subdir}/repodata.json", json.dumps({"info": {"subdir": subdir}, "packages": {}}))
        for name, recipe in recipes.items():
            self.write_recipe(name, **recipe)
        stack = {"description": "toys", "packages": [*recipes], "install": [*recipes]}
        stacks = {"toy": {**stack, "validate": {"method": "switchml"}}}
        self._write("tree/variants/stacks.yaml", yaml.safe_dump({"default_stack": "toy", "stacks": stacks}))

    def write_recipe(self, name: str, *, script: str = ":", host: tuple[str, ...] = ()) -> None:
        made = f"mkdir -p $PREFIX/share; echo {name} > $PREFIX/share/{name}"
        recipe = {
            "schema_version": 1,
            "package": {"name": name, "version": "1.0"},
            "build": {"noarch": "generic", "number": 0, "script": [f"{script}; {made}"]},
            "requirements": {"host": list(host)},
            "about": {"license": "BSD-3-Clause", "homepage": "https://toy.example", "summary": "toy"},
        }
        self._write(f"tree/recipes/{name}/recipe.yaml", yaml.safe_dump(recipe))

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        foundation = (self.folder / "foundation").as_uri()
        command = [sys.executable, "-m", "channel_tools", "build", "--foundation", "conda-forge"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
        return subprocess.Popen(
            [*command, "--foundation-channel", foundation, *map(str, words)],
            cwd=self.tree,
            env={**kept, "CHANNEL_TOOLS_CACHE": str(self.folder / "cache"), "PATH": self._path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build(self, *words: str | Path, code: int = 0) -> str:
        """What the command says; it has to end with ``code``."""
        with self.start(*words) as process:
            said, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, errors
        return said + errors

    def published(self) -> list[str]:
        channel = open_channel(self.tree / "output" / "channel")
        assert verify_channel(channel) == []
        return [package.name for package in published_packages(channel)]

    def log(self, name: str) -> str:
        (path,) = self.tree.glob(f"output/logs/{name}-1.0-*[0-9].log")
        return path.read_text()


def read_pipe(pipe: Path) -> list[int]:
    """The numbers that a build's script writes to the pipe; it is given PATIENCE_S to begin."""
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reading], [], [], PATIENCE_S)[0], "the build did not start"
        return [int(word) for word in os.read(reading, 4096).split()]
    finally:
        os.close(reading)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def job_of(slurm: Slurm, name: str) -> str:
    """The id of the job that builds the package."""
    (found,) = [number for number, comment in slurm.jobs().items() if f"_wildcards_{name}-" in comment]
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, as builds that other machines see need one; pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="cluster-") as place:
        yield Path(place)


def test_a_stack_is_built_by_jobs_of_slurm(folder: Path, slurm: Slurm) -> None:
    pipe, cancelled = folder / "pipe", folder / "cancelled"
    os.mkfifo(pipe)
    recipes: dict[str, Recipe] = {
        "base": {"script": "echo cores=$CPU_COUNT slurm=$(env | grep -c SLURM)"},
        "bad": {"script": "echo boom $(cat $PREFIX/share/base); exit 3", "host": ("base",)},
        "held": {"host": ("bad",)},
        "lost": {"script": f"if test ! -e {cancelled}; then touch {cancelled}; echo $$ > {pipe}; sleep 1000; fi"},
    }
    tool = Tool(folder, slurm, recipes)
    with tool.start("--on", "slurm") as process:
        script = read_pipe(pipe)
        slurm.run("scancel", job_of(slurm, "lost"))
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == BuildError.exit_code, said
    assert "the build script failed" in said
    assert "boom base" in said
    assert "not built because of that: held-1.0" in said
    assert tool.published() == ["base", "lost"]
    assert_ended(script)
    cores = min(4, len(os.sched_getaffinity(0)))  # no more than the node has, whatever its Slurm says
    assert f"cores={cores} slurm=0" in tool.log("base")
    asked = slurm.run("squeue", "--states=all", "--noheader", "--sort=i", "--format=%k %m %l")
    assert [line.split()[1:] for line in asked.splitlines() if "_lost-" in line] == [
        ["8000M", "4:00:00"],
        ["16000M", "8:00:00"],
    ]
    assert sum("_bad-" in line for line in asked.splitlines()) == 1


def test_killed_runs_lose_nothing_and_build_nothing_twice(folder: Path, slurm: Slurm) -> None:
    pipe, go, built = folder / "pipe", folder / "go", folder / "built"
    os.mkfifo(pipe)
    os.mkfifo(go)
    tool = Tool(
        folder, slurm, {"slow": {"script": f"echo $$ > {pipe}; read line < {go}; echo $$ $CPU_COUNT >> {built}"}}
    )

    with tool.start("--on", tool.profile) as first:
        script = read_pipe(pipe)
        refused = tool.build("--on", tool.profile, code=ChannelError.exit_code)
        assert f"in use by process {first.pid}" in refused
        first.kill()
    assert_ended(script)  # Snakemake hears of the driver's end and cancels its jobs
    wait_for(lambda: not slurm.jobs())

    with tool.start("--on", tool.profile) as second:
        script = read_pipe(pipe)
        os.kill(int(Path(f"/proc/{second.pid}/task/{second.pid}/children").read_text()), signal.SIGKILL)
        _, said = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == BuildError.exit_code
    assert "its job left no result" in said
    survivor = job_of(slurm, "slow")

    with tool.start("--on", tool.profile) as third:
        wait_for(lambda: [*slurm.jobs()] != [survivor] and slurm.is_running(max(slurm.jobs(), key=int)))
        go.write_text("on\n")
        _, said = third.communicate(timeout=LIMIT_S)
    assert third.returncode == 0, said
    assert tool.published() == ["slow"]
    assert built.read_text() == f"{script[0]} 1\n"


def test_an_emitted_workflow_builds_with_snakemake_alone(folder: Path) -> None:
    tool = Tool(folder, None, {"base": {}})
    snakefile = tool.build("--emit", "snakemake", "-o", folder / "workflow").splitlines()[0]
    command = [str(snakemake_folder() / "snakemake"), "--snakefile", snakefile, "--cores", "2"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert made.returncode == 0, made.stderr
    assert tool.published() == ["base"]
