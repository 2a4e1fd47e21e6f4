# SPDX-License-Identifier: BSD-3-Clause
"""``launch`` in a Slurm of two nodes: its script, srun's plug-ins for MPI, what a rank finds; ``doctor --launch``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_for
from tests.support.slurm import Slurm, running_slurm
from tests.unit.ranks.conftest import Site, make_site
from tests.unit.workflow.test_doctor import PROCESS, add_torch

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, slurm: Slurm) -> Site:
    """With Slurm's own clients in the place of the stand-ins."""
    site = make_site(tmp_path)
    for name in ("srun", "scontrol"):
        (tmp_path / "bin" / name).unlink()
    return Site(folder=site.folder, environ={**site.environ, "PATH": f"{slurm.bin}:{site.environ['PATH']}"})


def submit(slurm: Slurm, site: Site, *words: str) -> str:
    """What the job printed, when it has ended."""
    job, log = site.folder / "job.sh", site.folder / "log"
    emitted = site.launch("--ranks", "4", "--nodes", "2", "--emit", "slurm", "-o", str(job), "train.py", *words)
    assert emitted.returncode == 0, emitted.stderr
    slurm.run("sbatch", f"--output={log}", f"--export=PATH={site.environ['PATH']},HOME={os.environ['HOME']}", str(job))
    wait_for(lambda: not slurm.jobs())
    return log.read_text()


def test_a_job_of_two_nodes_has_one_world(slurm: Slurm, site: Site) -> None:
    log = submit(slurm, site, "on", "nodes")
    assert f"{slurm.bin}/srun --mpi=pmi2 --ntasks=4 --kill-on-bad-exit=1 --export=ALL --input=0 " in log
    ranks = sorted(line.split()[:3] for line in log.splitlines() if line.endswith(" on nodes") and line[0].isdigit())
    assert ranks == [["0", "4", "0"], ["1", "4", "1"], ["2", "4", "0"], ["3", "4", "1"]]


def test_a_rank_that_is_killed_ends_the_job(slurm: Slurm, site: Site) -> None:
    assert "Killed" in submit(slurm, site, "kill")


@pytest.mark.slow
def test_doctor_asks_a_rank_on_each_node_of_the_job(slurm: Slurm, site: Site) -> None:
    add_torch(site)
    job, log, out = site.folder / "job.sh", site.folder / "log", site.folder / "out"
    words = ["doctor", "--launch", "--root", str(site.folder / "tree"), "--json", str(site.folder / "env")]
    command = shlex.join([sys.executable, "-m", "channel_tools", *words])
    job.write_text(f"#!/bin/sh\nexport PYTHONPATH={site.environ['PYTHONPATH']}\n{command} > {out} || true\n")
    given = f"--export=PATH={site.environ['PATH']},HOME={os.environ['HOME']}"
    slurm.run("sbatch", "--wait", "--nodes=2", "--time=5", f"--output={log}", given, str(job))
    findings = {one["subject"]: one["found"] for one in json.loads(out.read_text())["findings"]}
    (subject,) = [subject for subject in findings if subject.startswith(PROCESS)]
    assert subject.count(os.uname().nodename) == 2
    assert findings[subject].startswith("PyTorch 2.13.0, ")
