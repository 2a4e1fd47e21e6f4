# SPDX-License-Identifier: BSD-3-Clause
"""What the schedulers' words mean, and the waiting for a job, with a scheduler that says what it is told to."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.ranks.hosts import hosts_of_the_job
from channel_tools.ranks.jobs import JobFolder, Listener, run_job_script
from channel_tools.system import schedulers
from channel_tools.system.errors import CommandError, JobError, signals_raised
from channel_tools.system.schedulers import PBS_JOBS, JobState, QueuedJob, SchedulerName, scheduler_of


def write_client(folder: Path, name: str, text: str) -> dict[str, str]:
    """An environment whose PATH has a client that prints the text, or fails with it after ``!``."""
    failing = text.startswith("!")
    (folder / name).write_text(
        f"#!/bin/sh\ncat <<'END' >&{2 if failing else 1}\n{text.lstrip('!')}\nEND\nexit {failing:d}\n"
    )
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("PENDING|Resources|", JobState(phase="waiting", words="PENDING (Resources)")),
        ("RUNNING|None|n[1-2]", JobState(phase="running", words="RUNNING on n[1-2]")),
        ("COMPLETED|None|n1", JobState(phase="ended", words="COMPLETED")),
        ("FAILED|NonZeroExitCode|n1", JobState(phase="ended", words="FAILED")),
        ("TIMEOUT|TimeLimit|n1", JobState(phase="ended", words="TIMEOUT", failure="it reached its time limit")),
        ("NODE_FAIL|NodeDown|n1", JobState(phase="ended", words="NODE_FAIL", failure="it lost a node")),
        (
            "a notice of the site\nPENDING|ReqNodeNotAvail, UnavailableNodes:n|1|",
            JobState(
                phase="waiting",
                words="PENDING (ReqNodeNotAvail, UnavailableNodes:n|1)",
                stuck="ReqNodeNotAvail, UnavailableNodes:n|1",
            ),
        ),
        ("a notice of the site", JobState(phase="ended", words="no longer known")),
        ("", JobState(phase="ended", words="no longer known")),
        ("!slurm_load_jobs error: Invalid job id specified", JobState(phase="ended", words="no longer known")),
    ],
)
def test_states_of_slurm(tmp_path: Path, said: str, state: JobState) -> None:
    assert scheduler_of("slurm", write_client(tmp_path, "squeue", said)).state("7") == state


@pytest.mark.parametrize(
    ("client", "scheduler", "said", "job"),
    [
        ("sbatch", "slurm", "a notice of the site\n7;cluster", "7"),
        ("qsub", "pbs", "a notice of the site\n7[].server\n", "7[].server"),
    ],
)
def test_a_submitted_jobs_id_is_found_among_a_sites_notices(
    client: str, scheduler: SchedulerName, said: str, job: str, tmp_path: Path
) -> None:
    assert scheduler_of(scheduler, write_client(tmp_path, client, said)).submit(tmp_path / "job.sh", []) == job
    with pytest.raises(CommandError, match=f"{client}: expected the job's id, got 'a notice'"):
        scheduler_of(scheduler, write_client(tmp_path, client, "a notice")).submit(tmp_path / "job.sh", [])


@pytest.mark.parametrize(("client", "scheduler"), [("sbatch", "slurm"), ("qsub", "pbs")])
def test_a_client_that_hangs_may_have_submitted_the_job(
    client: str, scheduler: SchedulerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "_LIMIT_S", 0.2)
    environ = write_client(tmp_path, client, "")
    (tmp_path / client).write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(CommandError, match=f"^{client} .*: did not finish within 0.2 s") as caught:
        scheduler_of(scheduler, environ).submit(tmp_path / "job.sh", [])
    assert caught.value.hint == "the job may have been submitted anyway: check with squeue or qstat"


def test_slurms_reasons_are_told_of_the_jobs_that_were_asked_for_whatever_else_squeue_prints(tmp_path: Path) -> None:
    said = f"""a notice of the site
6|PENDING|c|{tmp_path}|PartitionTimeLimit
7|PENDING|a|{tmp_path}|ReqNodeNotAvail, UnavailableNodes:n|1
8|PENDING|b|{tmp_path}/other|PartitionTimeLimit
9|RUNNING|d|{tmp_path}|None"""
    asked = scheduler_of("slurm", write_client(tmp_path, "squeue", said)).queued(tmp_path, ["a", "b", "d"])
    assert asked == {
        "a": QueuedJob(job="7", stuck="ReqNodeNotAvail, UnavailableNodes:n|1"),
        "d": QueuedJob(job="9", stuck=""),
    }


def test_a_host_counts_once_for_each_line_of_a_pbs_job(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n1\nn1\nn2\nn2\n")
    hosts = hosts_of_the_job(4, environ={"PBS_NODEFILE": str(tmp_path / "nodes")})
    assert [(host.name, host.ranks) for host in hosts] == [("n1", 2), ("n2", 2)]


def attributes(**values: str) -> str:
    return "\n".join(["Job Id: 7.server", *(f"    {name} = {value}" for name, value in values.items())])


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (attributes(job_state="Q", comment="Not enough"), JobState(phase="waiting", words="state Q, Not enough")),
        (
            attributes(job_state="Q", comment="Can Never Run: Not enough"),
            JobState(phase="waiting", words="state Q, Can Never Run: Not enough", stuck="Can Never Run: Not enough"),
        ),
        (attributes(job_state="R", exec_host="a/0*2+b/0*2"), JobState(phase="running", words="state R, a/0*2+b/0*2")),
        (attributes(job_state="F", Exit_status="0"), JobState(phase="ended", words="F")),
        (attributes(job_state="F", Exit_status="10"), JobState(phase="ended", words="F")),
        (
            attributes(job_state="F", Exit_status="-29"),
            JobState(phase="ended", words="F", failure="it reached its time limit"),
        ),
        (
            attributes(job_state="F", Exit_status="271"),
            JobState(phase="ended", words="F", failure="signal 15 ended it, as qdel does"),
        ),
        (
            attributes(job_state="F", Exit_status="-2"),
            JobState(phase="ended", words="F", failure="PBS could not run it (Exit_status -2)"),
        ),
        ("!qstat: Unknown Job Id 7.server", JobState(phase="ended", words="no longer known")),
    ],
)
def test_states_of_pbs(tmp_path: Path, said: str, state: JobState) -> None:
    assert scheduler_of("pbs", write_client(tmp_path, "qstat", said)).state("7.server") == state


def test_only_jobs_that_will_not_have_their_turn_are_stuck(tmp_path: Path) -> None:
    turns = ("Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "QOSMaxCpuPerUserLimit")
    stuck = ("PartitionTimeLimit", "MaxMemPerLimit", "QOSMaxCpuPerJobLimit", "AssocMaxWallDurationPerJobLimit")
    lines = [f"{number}|PENDING|{reason}|{tmp_path}|{reason}" for number, reason in enumerate((*turns, *stuck))]
    slurm = scheduler_of("slurm", write_client(tmp_path, "squeue", "\n".join(lines)))
    queued = slurm.queued(tmp_path, [*turns, *stuck])
    assert {name: job.stuck for name, job in queued.items()} == {
        **dict.fromkeys(turns, ""),
        **{one: one for one in stuck},
    }
    said = [
        "Job Id: 7.server\n    job_state = Q\n    comment = Not Running: Insufficient amount of resource: ncpus\n",
        "Job Id: 8.server\n    job_state = R\n    exec_host = a/0\n",
        "Job Id: 9.server\n    job_state = Q\n    comment = Can Never Run: Insufficient amount of resou\n\trce: mem\n",
        "Job Id: 10.server\n    job_state = F\n    Exit_status = 0\n",
    ]
    pbs = scheduler_of("pbs", write_client(tmp_path, "qstat", "\n".join(said)))
    assert pbs.queued(tmp_path, ["a"]) == {}
    (tmp_path / PBS_JOBS).mkdir()
    for name, number in zip("abcd", (7, 8, 9, 10), strict=True):
        (tmp_path / PBS_JOBS / name).write_text(f"{number}.server")
    assert pbs.queued(tmp_path, ["a", "b", "c", "d"]) == {
        "a": QueuedJob(job="7.server", stuck=""),
        "b": QueuedJob(job="8.server", stuck=""),
        "c": QueuedJob(job="9.server", stuck="Can Never Run: Insufficient amount of resource: mem"),
    }


@pytest.mark.parametrize(("client", "scheduler"), [("squeue", "slurm"), ("qstat", "pbs")])
def test_a_scheduler_that_fails_is_no_end(tmp_path: Path, client: str, scheduler: SchedulerName) -> None:
    environ = write_client(tmp_path, client, "!Unable to contact the controller")
    with pytest.raises(CommandError, match="Unable to contact"):
        scheduler_of(scheduler, environ).state("7")


@dataclass
class ToldScheduler:
    """Goes through the steps at each question: a state, an error, or something to do before the state."""

    steps: list[object]
    name: SchedulerName = "slurm"
    options: list[str] = field(default_factory=list)
    refusal: str = ""
    """Why it does not take the job."""
    interrupted_by: signal.Signals | None = None
    """What this process gets while it submits."""
    cannot_cancel: bool = False

    def submit(self, script: Path, options: object) -> str:
        del script, options
        if self.interrupted_by is not None:
            os.kill(os.getpid(), self.interrupted_by)
        if self.refusal:
            raise CommandError(self.refusal)
        return "7"

    def state(self, job: str) -> JobState:
        assert job == "7"
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        assert isinstance(step, JobState)
        return step

    def queued(self, folder: Path, names: Collection[str]) -> dict[str, QueuedJob]:
        del folder
        return {name: QueuedJob(job="7", stuck="") for name in names}

    def cancel_command(self, job: str) -> list[str]:
        return ["sh", "-c", f"echo {job} > cancelled/job" if self.cannot_cancel else f"echo {job} > cancelled"]


RUNNING, DONE = JobState(phase="running", words="R"), JobState(phase="ended", words="done")


def run(
    folder: Path,
    *steps: object,
    refusal: str = "",
    interrupted_by: signal.Signals | None = None,
    notes: list[str] | None = None,
    cannot_cancel: bool = False,
) -> tuple[int, list[str], bytes]:
    notes = [] if notes is None else notes
    errors: list[bytes] = []
    listener = Listener(note=notes.append, output=errors.append, errors=errors.append)
    scheduler = ToldScheduler([*steps], refusal=refusal, interrupted_by=interrupted_by, cannot_cancel=cannot_cancel)
    code = run_job_script(
        scheduler, JobFolder(path=folder), folder / "job.sh",
        options=(), asks="nodes: 5", environ={"PATH": "/usr/bin:/bin"}, listener=listener, ask_every_s=0.0,
    )  # fmt: skip
    return code, notes, b"".join(errors)


def test_a_job_is_followed_to_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("words\n")
    (tmp_path / "exit-code").write_text("10\n")
    code, notes, errors = run(tmp_path, RUNNING, CommandError("no answer"), RUNNING, DONE)
    assert (code, errors) == (10, b"words\n")
    assert notes[1:] == ["job 7: R"]
    assert f"its log: {tmp_path / 'log'}; to cancel it: sh -c" in notes[0]


def test_a_job_that_was_ended_is_an_error_also_where_its_command_said_something(tmp_path: Path) -> None:
    (tmp_path / "exit-code").write_text("143\n")
    ended = JobState(phase="ended", words="TIMEOUT", failure="it reached its time limit")
    with pytest.raises(JobError, match="job 7 of slurm did not complete: it reached its time limit") as raised:
        run(tmp_path, RUNNING, ended)
    assert str(tmp_path / "log") in str(raised.value.hint)


def test_a_job_without_a_result_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.ranks.jobs._FILES_LIMIT_S", 0.0)
    with pytest.raises(JobError, match=r"it left no result \(done\)"):
        run(tmp_path, DONE)


def test_an_interrupt_cancels_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, RUNNING, KeyboardInterrupt())
    assert (tmp_path / "cancelled").read_text() == "7\n"


def test_a_job_that_cannot_be_cancelled_is_named_with_the_command_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, RUNNING, KeyboardInterrupt(), notes=notes, cannot_cancel=True)
    assert notes[-1].startswith("job 7 could not be cancelled (")
    assert notes[-1].endswith("; cancel it: sh -c 'echo 7 > cancelled/job'")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_the_job_is_submitted_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.chdir(tmp_path)
    before = signal.signal(number, signal.SIG_DFL)  # nohup and shells' background jobs ignore some
    try:
        with signals_raised(), pytest.raises(KeyboardInterrupt):
            run(tmp_path, interrupted_by=number)
    finally:
        signal.signal(number, before)
    assert (tmp_path / "cancelled").read_text() == "7\n"


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("PartitionNodeLimit", "; give fewer --nodes or --ranks-per-node, less --time, or another"),
        ("AssocMaxSubmitJobLimit", "; run it again when your other jobs have ended"),
        ("JobHeldUser", ""),
    ],
)
def test_a_job_that_does_not_begin_by_itself_is_told_with_what_to_change(
    tmp_path: Path, reason: str, advice: str
) -> None:
    (tmp_path / "exit-code").write_text("0\n")
    turn = JobState(phase="waiting", words="PENDING (Priority)")
    stuck = JobState(phase="waiting", words=f"PENDING ({reason})", stuck=reason)
    _, notes, _ = run(tmp_path, turn, stuck, stuck, RUNNING, DONE)
    assert (notes[1], notes[3:]) == ("job 7: PENDING (Priority)", ["job 7: R"])
    assert notes[2].startswith(f"job 7 cannot start: {reason}; it requests nodes: 5{advice}")
    assert notes[2].endswith("; to cancel it: Ctrl-C")


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("Requested node configuration is not available", "give fewer --nodes or --ranks-per-node"),
        (
            "Invalid generic resource (gres) specification",
            "change that by --submit-option, or in the script that --emit",
        ),
    ],
)
def test_a_job_that_is_refused_is_an_error_with_what_to_change(tmp_path: Path, reason: str, advice: str) -> None:
    with pytest.raises(CommandError, match=re.escape(reason)) as raised:
        run(tmp_path, refusal=f"sbatch job.sh: exit status 1\nsbatch: error: {reason}")
    assert str(raised.value.hint).startswith(f"it requests nodes: 5; {advice}")
