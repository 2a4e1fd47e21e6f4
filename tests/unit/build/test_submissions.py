# SPDX-License-Identifier: BSD-3-Clause
"""The logger plugin's file as it grows, with a scheduler that says what it is told to."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from channel_tools.build.submissions import Submissions
from channel_tools.system.errors import CommandError
from channel_tools.system.schedulers import QueuedJob

MEMORY = "Memory specification can not be satisfied"
DETAILS = "\n    sbatch call:\n        sbatch --comment rule_build_wildcards_a-1.0 --wrap=...\n"
ADVICE = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
LESS = (
    "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
    " (--on FOLDER)"
)


class Cluster:
    """A file of events, a clock, and a scheduler; ``stuck_jobs`` None is one that does not answer."""

    def __init__(self, folder: Path) -> None:
        self.events = folder / "events.jsonl"
        self.now_s = 0.0
        self.stuck_jobs: dict[str, str] | None = {}
        self.forgotten: set[str] = set()
        self.questions: list[tuple[float, list[str]]] = []
        self.submissions = Submissions(self.events, self.queued, clock=lambda: self.now_s)

    def queued(self, stems: Collection[str]) -> dict[str, QueuedJob]:
        self.questions.append((self.now_s, [*stems]))
        if self.stuck_jobs is None:
            raise CommandError("no answer")
        jobs = {stem: QueuedJob(job=f"{7 + n}", stuck=self.stuck_jobs.get(stem, "")) for n, stem in enumerate(stems)}
        return {stem: job for stem, job in jobs.items() if stem not in self.forgotten}

    def says(self, text: str) -> None:
        with self.events.open("a") as stream:
            stream.write(text)

    def submits(self, number: int, stem: str, mib: int = 70000) -> None:
        event = {"rule": "build", "number": number, "stem": stem, "threads": 9, "mem_mb": mib, "runtime": 10}
        self.says(f"{json.dumps(event)}\n")

    def warnings(self, *waiting: str, until_s: float = 0.0) -> list[str]:
        """What is said from now on until then, with a look each half second."""
        said = [*self.submissions.warnings(waiting)]
        while self.now_s < until_s:
            self.now_s += 0.5
            said += self.submissions.warnings(waiting)
        return said


def failure(number: int, message: str, **more: object) -> str:
    return json.dumps({"rule": "build", "number": number, "message": message, **more}) + "\n"


def test_a_job_that_waits_for_ever_is_told_once_for_each_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.warnings("a-1.0", until_s=5) == []  # Snakemake has not begun
    cluster.now_s = 0.0
    cluster.submits(1, "a-1.0")
    cluster.submits(2, "b-1.0")
    cluster.stuck_jobs = {"a-1.0": "PartitionTimeLimit"}
    asked = "it requests cores: 9, memory_mib: 70000, minutes: 10"
    assert cluster.warnings("a-1.0", "b-1.0", until_s=60) == [
        f"a-1.0: its job 7 cannot start: PartitionTimeLimit; {asked}{LESS}"
    ]
    assert cluster.questions == [(time_s, ["a-1.0", "b-1.0"]) for time_s in (3.0, 9.0, 21.0, 45.0)]
    cluster.stuck_jobs = {"a-1.0": "JobHeldUser"}
    assert cluster.warnings("a-1.0", until_s=100) == [f"a-1.0: its job 7 cannot start: JobHeldUser; {asked}"]
    cluster.stuck_jobs = None
    assert cluster.warnings("a-1.0", until_s=1000) == []
    assert len(cluster.questions) == 9
    assert cluster.warnings(until_s=2000) == []
    assert len(cluster.questions) == 9  # nothing waits


@pytest.mark.parametrize(
    ("message", "words", "advice"),
    [
        (
            f"SLURM sbatch failed. The message was 'sbatch: error: {MEMORY}\nsbatch: error: not available'.{DETAILS}",
            f"SLURM sbatch failed. The message was 'sbatch: error: {MEMORY}; sbatch: error: not available'.",
            LESS,
        ),
        (
            f"SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit'.{DETAILS}",
            "SLURM sbatch failed. The error message was 'sbatch: error: QOSMaxSubmitJobPerUserLimit'.",
            "; submit fewer jobs at once with --jobs N",
        ),
        (
            "Error submitting jobscript (exit code 13):\nqsub: status 188\nqsub: Job exceeds queue resource limits\n",
            "Error submitting jobscript (exit code 13):; qsub: status 188; qsub: Job exceeds queue resource limits",
            LESS,
        ),
        ("Error submitting jobscript (exit code 1):\n", "Error submitting jobscript (exit code 1):", ""),
    ],
    ids=["too much", "too many", "by qsub", "without a word"],
)
def test_a_rejected_job_is_told_at_once_with_what_it_requests(
    tmp_path: Path, message: str, words: str, advice: str
) -> None:
    cluster = Cluster(tmp_path)
    rejected = failure(1, message + ADVICE)
    cluster.submits(1, "a-1.0")
    cluster.says(rejected[:60])
    assert cluster.warnings("a-1.0") == []  # written in part
    cluster.says(rejected[60:])
    cluster.submits(1, "a-1.0", mib=140000)  # again, with more
    cluster.says(rejected)
    told = f"a-1.0: its job was rejected: {words}; it requests cores: 9, memory_mib: 70000, minutes: 10{advice}"
    assert cluster.warnings("a-1.0") == [told]
    assert cluster.warnings("a-1.0") == []
    assert cluster.questions == []
    assert cluster.submissions.lost["a-1.0"].reasons == [words]


def test_a_job_that_the_scheduler_has_forgotten_is_told_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    cluster.submits(2, "never-known-1.0")
    cluster.forgotten = {"never-known-1.0"}
    assert cluster.warnings("a-1.0", "never-known-1.0", until_s=2000) == []
    cluster.forgotten.add("a-1.0")
    assert cluster.warnings("a-1.0", "never-known-1.0", until_s=2500) == []  # its end may not have been noticed
    (told,) = cluster.warnings("a-1.0", "never-known-1.0", until_s=9000)
    assert told.startswith("a-1.0: its job is no longer known to the scheduler")


def test_a_job_that_is_submitted_again_was_not_forgotten(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    assert cluster.warnings("a-1.0", until_s=1000) == []
    cluster.forgotten = {"a-1.0"}
    assert cluster.warnings("a-1.0", until_s=1500) == []
    cluster.forgotten.clear()
    cluster.submits(1, "a-1.0")
    assert cluster.warnings("a-1.0", until_s=9000) == []


def test_what_is_no_job_of_the_scheduler_is_no_lost_job(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.says(json.dumps({"rule": "admit", "number": 3, "stem": "a-1.0"}) + "\n")
    cluster.says(json.dumps({"rule": "admit", "number": 3, "message": "", "submitted": False}) + "\n")
    assert cluster.warnings("a-1.0", until_s=10) == []
    assert cluster.submissions.has_begun
    assert cluster.submissions.lost == {}
    assert cluster.questions == []


def test_each_job_that_was_lost_has_its_reason_and_the_last_its_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.submits(1, "a-1.0")
    for job, state in ((6, "TIMEOUT"), (7, "TIMEOUT")):
        message = f"SLURM-job '{job}' failed, SLURM status is: '{state}'. {ADVICE}"
        cluster.says(failure(1, message, submitted=True, logs=[f"/logs/{job}.log"]))
    assert cluster.warnings("a-1.0") == []
    assert cluster.submissions.lost["a-1.0"].description_of("a-1.0") == (
        "a-1.0: its jobs left no result\n"
        "    SLURM-job '6' failed, SLURM status is: 'TIMEOUT'.\n"
        "    SLURM-job '7' failed, SLURM status is: 'TIMEOUT'.\n"
        "log: /logs/7.log"
    )
