# SPDX-License-Identifier: BSD-3-Clause
"""``validate --on`` through a real Slurm of two nodes: how jobs end, and what other machines than this one see."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from channel_tools.ranks.jobs import JobFolder, JobOptions, Listener, recorded_job_script, run_job_script
from channel_tools.system.errors import JobError
from channel_tools.system.schedulers import scheduler_of
from tests.integration.conftest import ROOT, build_into_output
from tests.support.pbs import write_pbs
from tests.support.slurm import Slurm, running_slurm
from tests.support.switch import cluster_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LIMIT_S = 900


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as running:
        yield running


class Job:
    """A job script of two nodes that is followed; what it first prints makes something happen to it."""

    def __init__(self, folder: Path, slurm: Slurm) -> None:
        self.folder = JobFolder(path=folder)
        self.environ = {"PATH": f"{slurm.bin}:{os.environ['PATH']}"}
        self.notes: list[str] = []
        self.printed = b""
        self.happening: list[str] = []

    def run(self, command: str, *, nodes: int = 2) -> int:
        options = JobOptions(
            scheduler="slurm",
            name="toy",
            ranks=2 * nodes,
            nodes=nodes,
            time="00:05:00",
            gpus=False,
            folder=self.folder.path,
        )
        script = self.folder.path / "job.sh"
        script.write_text(recorded_job_script(options, self.folder, ["bash", "-c", command]))
        return run_job_script(
            scheduler_of("slurm", self.environ), self.folder, script,
            options=(), asks=options.asks, environ=self.environ, ask_every_s=0.2,
            listener=Listener(note=self._note, output=self._hear, errors=self._hear),
        )  # fmt: skip

    def _note(self, line: str) -> None:
        self.notes.append(line)
        if "cannot start" in line:
            raise KeyboardInterrupt

    def _hear(self, data: bytes) -> None:
        self.printed += data
        if self.happening:
            number = self.notes[0].split()[1]
            words = [word.format(job=number) for word in self.happening]
            self.happening = []
            subprocess.run(words, env={**os.environ, **self.environ}, check=True)


@pytest.fixture
def job(tmp_path: Path, slurm: Slurm) -> Job:
    return Job(tmp_path, slurm)


def test_a_job_hands_on_what_it_prints_and_its_exit_code(job: Job) -> None:
    assert job.run("srun hostname > /dev/null; echo $SLURM_NNODES nodes; echo why >&2; exit 10") == 10
    assert sorted(job.printed.splitlines()) == [b"2 nodes", b"why"]
    assert "to cancel it: scancel " in job.notes[0]


@pytest.mark.parametrize(
    ("happening", "message"),
    [
        (["scancel", "{job}"], "it was cancelled"),
        (["scontrol", "update", "nodename=n2", "state=down", "reason=lost"], "it lost a node"),
    ],
    ids=["cancelled", "node lost"],
)
def test_a_job_that_is_ended_is_one_error(job: Job, happening: list[str], message: str) -> None:
    job.happening = happening
    with pytest.raises(JobError, match=message) as raised:
        job.run("echo begun; sleep 1000")
    assert str(job.folder.log) in str(raised.value.hint)


def test_a_job_that_no_node_can_take_is_told_with_what_to_change(job: Job, slurm: Slurm) -> None:
    with pytest.raises(KeyboardInterrupt):
        job.run("true", nodes=5)
    number = job.notes[0].split()[1]
    told = f"job {number} cannot start: Partition(Config|NodeLimit); it requests nodes: 5, ranks: 10, .*; give fewer"
    assert [line for line in job.notes if re.match(told, line)]
    assert job.notes[-1] == f"job {number} cancelled"
    assert number not in slurm.run("squeue", "--noheader", "--format=%i").split()


def test_an_interrupt_while_sbatch_runs_leaves_no_job(job: Job, slurm: Slurm, tmp_path: Path) -> None:
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(f'#!/bin/sh\nkill -INT $PPID\n"{slurm.bin}/sbatch" "$@" | tee "{tmp_path}/submitted"\n')
    sbatch.chmod(0o755)
    job.environ["PATH"] = f"{sbatch.parent}:{job.environ['PATH']}"
    with pytest.raises(KeyboardInterrupt):
        job.run("sleep 1000")
    number = (tmp_path / "submitted").read_text().strip()
    assert number.isdecimal()
    state = slurm.run("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T").strip()
    assert state in {"CANCELLED", "COMPLETING"}


def validate(stack: str, scheduler: str, *words: str, path: Path, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """The report of the whole validation with two ranks on each of two nodes; every check has passed.

    With ``--all-variants`` it is that of the first variant, and those of all have passed.
    """
    built = build_into_output("build", "--variant", stack)
    assert built.returncode == 0, built.stderr
    command = [*before, sys.executable, "-m", "channel_tools", "validate", "--root", str(ROOT), "--variant", stack]
    done = subprocess.run(
        [*command, "--on", scheduler, "--nodes", "2", "--ranks-per-node", "2", "--json", *words],
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    reports: list[dict[str, Any]] = document.get("reports", [document])
    assert [report["passed"] for report in reports] == [True for _ in document.get("variants", reports)]
    return reports[0]


@pytest.mark.parametrize("stack", ["udp", "cray-mpich"])
def test_a_stack_is_validated_by_a_job_of_slurm(stack: str, slurm: Slurm) -> None:
    report = validate(stack, "slurm", path=slurm.bin)
    assert (report["hosts"], report["ranks"]) == (["n1", "n2"], 4)


def test_a_stack_is_validated_from_the_disks_of_its_nodes(tmp_path: Path) -> None:
    with running_slurm(disk=tmp_path) as slurm:
        report = validate("udp", "slurm", "--local-scratch", str(tmp_path), path=slurm.bin)
        left = slurm.run("srun", "--nodes=2", "--ntasks=2", "find", str(tmp_path), "-mindepth", "1")
    assert (report["hosts"], report["ranks"]) == (["n1", "n2"], 4)
    assert left == ""
    assert [*tmp_path.iterdir()] == []


def test_the_variants_of_a_stack_are_validated_by_a_job_of_pbs(slurm: Slurm, tmp_path: Path) -> None:
    assert validate("udp", "pbs", "--all-variants", path=write_pbs(tmp_path / "pbs", slurm))["ranks"] == 4


def test_hosts_with_addresses_of_their_own_are_two_workers_of_the_switch() -> None:
    with cluster_of(2) as cluster, running_slurm(cluster=cluster) as slurm:
        report = validate("udp", "slurm", path=slurm.bin, before=slurm.before)
    (seen,) = [check for check in report["checks"] if check["name"] == "the switch saw every host"]
    assert seen["found"] == "2"
