# SPDX-License-Identifier: BSD-3-Clause
"""Trees of toy recipes, and the command line that builds them on a cluster of ``tests.support.slurm``."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import yaml

from channel_tools.channel import open_channel, published_packages, verify_channel
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.slurm import Slurm
from tests.support.snakemake import snakemake_folder

_SITE = {"LOADEDMODULES": "site/1.0", "LD_LIBRARY_PATH": "/opt/site/lib", "CFLAGS": "-I/opt/site/include"}
"""What a site's modules set for everybody, and no build may see."""
_PROFILE = {
    "executor": "slurm",
    "jobs": 4,
    "config": ["cores=2", "mem_mb=1000", "runtime=10"],
    "retries": 2,
    "slurm-no-requeue": True,
    "slurm-init-seconds-before-status-checks": 1,
    "slurm-no-account": True,
    "slurm-status-command": "squeue",
}


class Recipe(TypedDict, total=False):
    """A line of its script, whose variables say which variants it has; which toys are in its environments."""

    script: str
    build: tuple[str, ...]
    host: tuple[str, ...]


class Tool:
    """The command line in a tree of toy recipes, with the cluster's programs on its PATH."""

    def __init__(
        self,
        folder: Path,
        slurm: Slurm | None,
        recipes: Mapping[str, Recipe],
        *,
        resources: Mapping[str, Mapping[str, int]] | None = None,
        pbs: Path | None = None,
        programs: tuple[str, ...] = (),
        variants: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.folder, self.tree = folder, folder / "tree"
        self.profile = folder / "profile"
        clients = [str(Path(program(name)).parent) for name in programs]
        clients += [*([str(pbs)] if pbs else []), *([str(slurm.bin)] if slurm else [])]
        self._path = os.pathsep.join([str(snakemake_folder()), *clients, os.environ["PATH"]])
        self._write("profile/config.yaml", yaml.safe_dump(_PROFILE))
        for subdir in ("noarch", "linux-64"):
            self._write(f"foundation/{subdir}/repodata.json", json.dumps({"info": {"subdir": subdir}, "packages": {}}))
        self._variants = variants or {}
        for name, recipe in recipes.items():
            self.write_recipe(name, **recipe)
        stack: dict[str, object] = {"description": "toys", "packages": [*recipes], "install": [*recipes]}
        if self._variants:
            stack["variants"] = ["toy.yaml"]
            self._write(
                "tree/variants/toy.yaml", yaml.safe_dump({key: [*found] for key, found in self._variants.items()})
            )
        stacks = {"toy": {**stack, "validate": {"method": "switchml"}}}
        file = {"default_stack": "toy", "stacks": stacks, "resources": dict(resources or {})}
        self._write("tree/variants/stacks.yaml", yaml.safe_dump(file))

    def write_recipe(
        self, name: str, *, script: str = ":", build: tuple[str, ...] = (), host: tuple[str, ...] = ()
    ) -> None:
        made = f"mkdir -p $PREFIX/share; echo {name} > $PREFIX/share/{name}"
        recipe = {
            "schema_version": 1,
            "package": {"name": name, "version": "1.0"},
            "build": {
                "noarch": "generic",
                "number": 0,
                "script": [f"{script}; {made}"],
                "variant": {"use_keys": [key for key in self._variants if f"${key}" in script]},
            },
            "requirements": {"build": list(build), "host": list(host)},
            "about": {"license": "BSD-3-Clause", "homepage": "https://toy.example", "summary": "toy"},
        }
        self._write(f"tree/recipes/{name}/recipe.yaml", yaml.safe_dump(recipe))

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, *words: str | Path, largest_file_bytes: int = -1) -> subprocess.Popen[str]:
        """The command; its jobs have its limit of the size of files, as Slurm's jobs have the submitter's limits."""
        foundation = (self.folder / "foundation").as_uri()
        command = [sys.executable, "-m", "channel_tools", "build", "--foundation", "conda-forge"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CHANNEL_TOOLS_")}
        limited = ["prlimit", f"--fsize={largest_file_bytes}"] if largest_file_bytes >= 0 else []
        return subprocess.Popen(
            [*limited, *command, "--foundation-channel", foundation, *map(str, words)],
            cwd=self.tree,
            env={**kept, **_SITE, "CHANNEL_TOOLS_CACHE": str(self.folder / "cache"), "PATH": self._path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def build(self, *words: str | Path, code: int = 0) -> str:
        """What the command says; it has to end with ``code``."""
        with self.start(*words) as process:
            said, errors = process.communicate(timeout=TEST_TIMEOUT_S)
        assert process.returncode == code, errors
        return said + errors

    def published(self) -> list[str]:
        channel = open_channel(self.tree / "output" / "channel")
        assert verify_channel(channel) == []
        return [package.row.name for package in published_packages(channel)]

    def said_by_snakemake(self) -> str:
        return (self.tree / "output" / "logs" / "snakemake.log").read_text()

    def log(self, name: str) -> str:
        (path,) = self.tree.glob(f"output/logs/{name}-1.0-*[0-9].log")
        return path.read_text()


def read_until(process: subprocess.Popen[str], words: str) -> str:
    """What the command says on stderr, up to these words; it is given TEST_TIMEOUT_S for each part of it."""
    assert process.stderr is not None
    said = ""
    while words not in said:
        assert select.select([process.stderr], [], [], TEST_TIMEOUT_S)[0], said
        part = os.read(process.stderr.fileno(), 4096).decode()
        assert part, said
        said += part
    return said


def read_pipe(pipe: Path) -> list[int]:
    """The numbers that a build's script writes to the pipe; it is given TEST_TIMEOUT_S to begin."""
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([reading], [], [], TEST_TIMEOUT_S)[0], "the build did not start"
        return [int(word) for word in os.read(reading, 4096).split()]
    finally:
        os.close(reading)


def job_of(slurm: Slurm, name: str) -> str:
    """The id of the job that builds the package."""
    (found,) = [number for number, comment in slurm.jobs().items() if f"_wildcards_{name}-" in comment]
    return found
