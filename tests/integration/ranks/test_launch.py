# SPDX-License-Identifier: BSD-3-Clause
"""``launch`` in a Slurm of two nodes: its job script, srun's plug-ins for MPI, and what a rank finds of its world."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import wait_for
from tests.support.slurm import Slurm, running_slurm
from tests.unit.ranks.conftest import Site, make_site

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
