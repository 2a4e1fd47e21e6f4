# SPDX-License-Identifier: BSD-3-Clause
"""``launch --image`` in jobs of Slurm and PBS: mounted on one node, unpacked on the disk of each of several."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from channel_tools.system.settings import CACHE_VARIABLE, MKSQUASHFS_VARIABLE, UNSQUASHFS_VARIABLE
from tests.integration.conftest import ROOT
from tests.support.command_line import run_tool
from tests.support.pbs import write_pbs
from tests.support.processes import wait_for
from tests.support.programs import program
from tests.support.slurm import Slurm, running_slurm

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = """\
import os, sys, torch
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in", sys.prefix, torch.__file__, flush=True)
"""
PROGRAMS = {MKSQUASHFS_VARIABLE: "mksquashfs", UNSQUASHFS_VARIABLE: "unsquashfs"}


@pytest.fixture(scope="module")
def programs() -> dict[str, str]:
    return {variable: program(name) for variable, name in PROGRAMS.items()}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, stack_channel: Path, programs: dict[str, str]) -> Path:
    folder = tmp_path_factory.mktemp("image")
    (folder / "at").mkdir()
    words = ("env", "image", "--variant", "udp", "-c", stack_channel, "-o", "udp.squashfs", "--at", folder / "at")
    made = run_tool(*words, cwd=folder, environ={**os.environ, **programs, "CHANNEL_TOOLS_ROOT": str(ROOT)})
    assert made.returncode == 0, made.stderr
    return folder / "udp.squashfs"


def launch_script(folder: Path, *words: object) -> str:
    """The line that runs SCRIPT, made in a folder, from there."""
    (folder / "script.py").write_text(SCRIPT)
    return shlex.join([sys.executable, "-P", "-m", "channel_tools", "launch", *map(str, words), "script.py"])


def submit(slurm: Slurm, folder: Path, programs: dict[str, str], *words: object, nodes: int) -> str:
    """What a job printed that runs the command with SCRIPT."""
    command = launch_script(folder, *words)
    path = f"{slurm.bin}:{Path(program('mount')).parent}:{os.environ['PATH']}"
    variables = {**programs, "PATH": path, "HOME": os.environ["HOME"], CACHE_VARIABLE: str(folder / "cache")}
    exported = ",".join(f"{name}={value}" for name, value in variables.items())
    options = (f"--nodes={nodes}", f"--ntasks={2 * nodes}", f"--output={folder}/log", f"--export={exported}")
    slurm.run("sbatch", *options, f"--chdir={folder}", f"--wrap={command}")
    wait_for(lambda: not slurm.jobs(), limit_s=300)
    return (folder / "log").read_text()


def ranks(log: str) -> list[str]:
    return sorted(line for line in log.splitlines() if line.startswith("rank "))


def test_a_job_of_one_node_runs_in_the_mounted_image(tmp_path: Path, image: Path, programs: dict[str, str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("the kernel mounts images only for root")
    at = image.parent / "at"
    with running_slurm() as slurm:
        log = submit(slurm, tmp_path, programs, "--image", image, nodes=1)
    assert [line.split()[:6] for line in ranks(log)] == [
        ["rank", str(rank), "of", "2", "in", str(at)] for rank in range(2)
    ], log
    assert list(at.iterdir()) == []


def test_a_job_of_two_nodes_unpacks_it_on_the_disk_of_each(
    tmp_path: Path, image: Path, programs: dict[str, str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ("--ranks", 4, "--image", image)
    with running_slurm(disk=disk) as slurm:
        refused = submit(slurm, tmp_path, programs, *words, nodes=2)
        log = submit(slurm, tmp_path, programs, *words, "--local-scratch", disk, nodes=2)
        places = slurm.run("srun", "--nodes=2", "--ntasks=2", "ls", str(disk)).split()
        missing = submit(slurm, tmp_path, programs, *words, "--local-scratch", tmp_path / "none", nodes=2)
    assert "can be mounted on this node alone, but the job has n1, n2" in refused
    assert len(places) == 2
    assert places[0] == places[1]
    assert [line.split()[:6] for line in ranks(log)] == [
        ["rank", str(rank), "of", "4", "in", str(disk / places[0])] for rank in range(4)
    ], log
    assert [*disk.iterdir()] == []
    assert "n2: channel_tools.system.errors.UsageError: --local-scratch" in missing
    assert "Traceback" not in missing


def test_a_job_of_pbs_with_two_nodes_unpacks_it_on_both_by_ssh_which_takes_no_variables_along(
    tmp_path: Path, image: Path, programs: dict[str, str]
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = launch_script(tmp_path, "--ranks", 4, "--image", image, "--local-scratch", disk)
    variables = {**programs, "HOME": os.environ["HOME"], CACHE_VARIABLE: str(tmp_path / "cache")}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    asked = f"#PBS -l select=2:ncpus=2:mpiprocs=2 -l walltime=00:05:00 -j oe -o {tmp_path}/log"
    job = tmp_path / "job.sh"
    job.write_text("\n".join(["#!/bin/bash", asked, *lines, f"cd {tmp_path}", f"exec {command}", ""]))
    with running_slurm() as slurm:
        subprocess.run([write_pbs(tmp_path / "pbs", slurm) / "qsub", job], check=True)
        wait_for(lambda: not slurm.jobs(), limit_s=300)
    log = (tmp_path / "log").read_text()
    ranked = [line.split()[:6] for line in ranks(log)]
    assert [words[:5] for words in ranked] == [["rank", str(rank), "of", "4", "in"] for rank in range(4)], log
    assert {Path(words[5]).parent for words in ranked} == {disk}
