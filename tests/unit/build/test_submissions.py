# SPDX-License-Identifier: BSD-3-Clause
"""Snakemake's log as it grows, with a scheduler that says what it is told to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from channel_tools.build.submissions import Submissions, lost_jobs
from channel_tools.system.errors import CommandError

RULE = """
[Mon Jan  1 00:00:00 2026]
rule build:
    output: results/{stem}.built
    jobid: {number}
    reason: Missing output files: results/{stem}.built
    wildcards: stem={stem}
    threads: 9
    resources: tmpdir=<TBD>, runtime=10, mem_mb={mib}, mem=70 GB, mem_mib=66758
"""
REFUSED = """{qsub}[Mon Jan  1 00:00:00 2026]
Error in rule build:
    message: {message}
    sbatch call:
        sbatch --comment rule_build_wildcards_a-1.0 --wrap="..."
For further error details see the cluster/cloud log and the log files of the involved rule(s).
    jobid: 1
    output: results/a-1.0.built
    shell:
        ...
Trying to restart job 1.
"""
MEMORY = "Memory specification can not be satisfied"
SBATCH = f"""SLURM sbatch failed. The error message was 'sbatch: error: {MEMORY}
sbatch: error: Batch job submission failed: Requested node configuration is not available'."""
LESS = (
    "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
    " (--on FOLDER)"
)


class Cluster:
    """A log, a clock, and a scheduler; ``stuck_jobs`` None is one that does not answer."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "snakemake.log"
        self.log.touch()
        self.now_s = 0.0
        self.stuck_jobs: dict[str, str] | None = {}
        self.questions: list[tuple[float, list[str]]] = []
        self.submissions = Submissions(self.log, self.stuck, clock=lambda: self.now_s)

    def stuck(self, jobs: Sequence[str]) -> dict[str, str]:
        self.questions.append((self.now_s, [*jobs]))
        if self.stuck_jobs is None:
            raise CommandError("no answer")
        return self.stuck_jobs

    def says(self, text: str) -> None:
        with self.log.open("a") as stream:
            stream.write(text)

    def submits(self, number: int, stem: str) -> None:
        self.says(RULE.format(number=number, stem=stem, mib=70000))
        self.says(f"Job {number} has been submitted with SLURM jobid {number + 100} (log: /slurm_logs/{stem}.log).\n")

    def warnings(self, *waiting: str, until_s: float = 0.0) -> list[str]:
        """What is said from now on until then, with a look each half second."""
        said = [*self.submissions.warnings(waiting)]
        while self.now_s < until_s:
            self.now_s += 0.5
            said += self.submissions.warnings(waiting)
        return said


def test_a_job_that_waits_for_ever_is_told_once_for_each_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    cluster.submits(2, "b-1.0")
    cluster.stuck_jobs = {"101": "PartitionTimeLimit"}
    asked = "it requests cores: 9, memory_mib: 70000, minutes: 10"
    assert cluster.warnings("a-1.0", "b-1.0", until_s=60) == [
        f"a-1.0: its job 101 cannot start: PartitionTimeLimit; {asked}{LESS}"
    ]
    assert cluster.questions == [(time_s, ["101", "102"]) for time_s in (3.0, 9.0, 21.0, 45.0)]
    cluster.stuck_jobs = {"101": "JobHeldUser"}
    assert cluster.warnings("a-1.0", until_s=100) == [f"a-1.0: its job 101 cannot start: JobHeldUser; {asked}"]
    cluster.stuck_jobs = None
    assert cluster.warnings("a-1.0", until_s=1000) == []
    assert len(cluster.questions) == 9
    assert cluster.warnings(until_s=2000) == []
    assert len(cluster.questions) == 9  # nothing waits


@pytest.mark.parametrize(
    ("command", "qsub", "message", "words", "advice"),
    [
        (
            "sbatch",
            "",
            SBATCH,
            f"{MEMORY}; Batch job submission failed: Requested node configuration is not available",
            LESS,
        ),
        (
            "sbatch",
            "",
            "SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit'.",
            "QOSMaxSubmitJobPerUserLimit",
            "; submit fewer jobs at once with --jobs N",
        ),
        (
            "qsub",
            "qsub: Job exceeds queue resource limits\n",
            "Error submitting jobscript (exit code 188):\n",
            "Job exceeds queue resource limits",
            LESS,
        ),
        ("qsub", "", "Error submitting jobscript (exit code 1):\n", "exit code 1", ""),
    ],
    ids=["too much", "too many", "by qsub", "without a word"],
)
def test_a_refused_job_is_told_at_once_with_what_it_asked_for(
    tmp_path: Path, command: str, qsub: str, message: str, words: str, advice: str
) -> None:
    cluster = Cluster(tmp_path)
    refused = REFUSED.format(qsub=qsub, message=message)
    cluster.says(RULE.format(number=1, stem="a-1.0", mib=70000))
    cluster.says(refused[:60])
    assert cluster.warnings("a-1.0") == []  # written in part
    cluster.says(refused[60:] + RULE.format(number=1, stem="a-1.0", mib=140000) + refused)
    assert cluster.warnings("a-1.0") == [
        f"a-1.0: its job was rejected: {words}; it requests cores: 9, memory_mib: 70000, minutes: 10{advice}"
    ]
    assert cluster.questions == []
    assert lost_jobs(cluster.log)["a-1.0"].ends == [f"{command} rejected it ({words})"]


def test_a_job_of_pbs_is_known_by_its_whole_name(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.says(RULE.format(number=1, stem="a-1.0", mib=70000) + "Submitted job 1 with external jobid '7.server'.\n")
    cluster.stuck_jobs = {"7.server": "Can Never Run: Insufficient amount of resource: ncpus"}
    (said,) = cluster.warnings("a-1.0", until_s=5)
    assert said.startswith("a-1.0: its job 7.server cannot start: Can Never Run: Insufficient amount of resource: n")
    assert said.endswith(LESS)
