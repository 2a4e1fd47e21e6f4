# SPDX-License-Identifier: BSD-3-Clause
"""``build --on``: toy packages built by jobs of a real Slurm of two nodes, through Snakemake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import pytest
import yaml

from channel_tools.channel import open_channel, published_packages, verify_channel
from channel_tools.system.errors import BuildError
from tests.support.slurm import Slurm, running_slurm
from tests.support.snakemake import snakemake_folder

pytestmark = pytest.mark.integration

_PROFILE = {
    "executor": "slurm",
    "jobs": 4,
    "config": ["cores=2", "mem_mb=1000", "runtime=10"],
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

    def __init__(self, folder: Path, slurm: Slurm, recipes: Mapping[str, Recipe]) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.profile = folder / "profile"
        self._path = os.pathsep.join([str(snakemake_folder()), str(slurm.bin), os.environ["PATH"]])
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
            said, errors = process.communicate(timeout=240)
        assert process.returncode == code, errors
        return said + errors

    def published(self) -> list[str]:
        channel = open_channel(self.tree / "output" / "channel")
        assert verify_channel(channel) == []
        return [package.name for package in published_packages(channel)]

    def log(self, name: str) -> str:
        (path,) = self.tree.glob(f"output/logs/{name}-1.0-*[0-9].log")
        return path.read_text()


def test_a_stack_is_built_by_jobs_of_slurm(tmp_path: Path, slurm: Slurm) -> None:
    recipes: dict[str, Recipe] = {
        "base": {"script": "echo cores=$CPU_COUNT slurm=$(env | grep -c SLURM)"},
        "upper": {"script": "test -f $PREFIX/share/base", "host": ("base",)},
        "bad": {"script": "echo boom; exit 3"},
        "held": {"host": ("bad",)},
    }
    tool = Tool(tmp_path, slurm, recipes)
    said = tool.build("--on", tool.profile, code=BuildError.exit_code)
    assert "bad-1.0-" in said
    assert "the build script failed" in said
    assert "boom" in said
    assert "not built because of that: held-1.0" in said
    assert tool.published() == ["base", "upper"]
    assert "cores=2 slurm=0" in tool.log("base")
