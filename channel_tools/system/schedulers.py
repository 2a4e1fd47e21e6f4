# SPDX-License-Identifier: BSD-3-Clause
"""Slurm and PBS through their user commands: submit a job script, query its state, cancel the job.

Both forget jobs: Slurm some minutes after their end (MinJobAge), PBS at once unless the site keeps a history
(job_history_enable). So an unknown job has ended, and only its own files say how.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from channel_tools.system.errors import CommandError
from channel_tools.system.processes import CommandTimeoutError, run_command

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.processes import CommandResult

SchedulerName = Literal["slurm", "pbs"]
_LIMIT_S = 120.0
# squeue's states of jobs that were ended by something other than their script, as sentences
_SLURM_ENDS = {
    "BOOT_FAIL": "its nodes did not start",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "it reached its deadline",
    "NODE_FAIL": "it lost a node",
    "OUT_OF_MEMORY": "it ran out of memory",
    "PREEMPTED": "another job took its place",
    "REVOKED": "it was revoked",
    "TIMEOUT": "it reached its time limit",
}
_SLURM_WAITING = frozenset({"CONFIGURING", "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
_SLURM_ENDED = frozenset({"COMPLETED", "FAILED", *_SLURM_ENDS})
# squeue's reasons (JOB REASON CODES in its manual) of jobs that will start after other jobs or at some time
_SLURM_TURN = re.compile(
    r"None|Priority|Resources|Dependency|BeginTime|Cleaning|Prolog|Licenses|Reservation|JobArrayTaskLimit|SchedDefer"
    r"|(QOS|Assoc)(Grp|MaxJobs)\w*|(QOS|Assoc)Max\w+Per(User|Account)\w*"
)
_SLURM_STATE = re.compile(r"^([A-Z_]+)\|(.*)\|([^|\n]*)$", re.MULTILINE)
"""The wanted output about a job, among notices that a site prints."""
_SLURM_FIELDS = 5
"""How many fields of squeue a line about a job has: that is no notice of the site."""
_SLURM_JOB = re.compile(r"^(\d+)(?:;\S*)?$", re.MULTILINE)
_PBS_JOB = re.compile(r"^(\d\S*)$", re.MULTILINE)
_NOT_KNOWN = re.compile(r"invalid job id|unknown job id", re.IGNORECASE)
_PBS_ATTRIBUTE = re.compile(r"^ {4}(\w+) = (.*)$", re.MULTILINE)
_PBS_ENTRY = re.compile(r"^Job Id: (\S+)\n((?:(?!Job Id:).*\n)*)", re.MULTILINE)
_PBS_NEVER = "Can Never Run"
"""The start of the PBS scheduler's comment on a job that no node can run."""
PBS_JOBS = "pbs-jobs"
"""The folder, in the one that jobs were submitted in, with files of their names that contain their ids."""
_TOO_MANY = re.compile(r"SubmitJob|would exceed")
_TOO_MUCH = re.compile(
    r"Limit|PartitionConfig|BadConstraints|Per(Job|Node)|can not be satisfied|not available|exceeds|"
    + re.escape(_PBS_NEVER)
)
"""In a scheduler's reasons for rejected or stuck jobs: those that fewer jobs, or a smaller job, would avoid."""
_PBS_RUNNING, _PBS_ENDED = frozenset("RE"), frozenset("FXCM")
# PBS's own numbers for Exit_status (Administrator's Guide, Job Exit Status Codes); from 256 on a signal is added
_PBS_WALL_TIME, _PBS_MEMORY, _PBS_SIGNALS = -29, -27, 256


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResources:
    """The resources of a build that a scheduler runs; None means not specified, so other settings decide."""

    cores: int | None = None
    memory_mib: int | None = None
    minutes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """The state of a job; ``words`` is the scheduler's description.

    ``failure`` is a sentence about a job that was ended by something other than its script, "" for all others;
    ``stuck`` is the reason of a job that waits for something other than its turn.
    """

    phase: Literal["waiting", "running", "ended"]
    words: str
    failure: str = ""
    stuck: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuedJob:
    """A job that waits or runs: its id, and ``stuck`` as in JobState."""

    job: str
    stuck: str


class Scheduler(Protocol):
    """The commands of a scheduler. All raise CommandError if a command is missing or fails."""

    @property
    def name(self) -> SchedulerName:
        """Its name for ``--on``."""

    def submit(self, script: Path, options: Sequence[str]) -> str:
        """Submit a script with further options of the command; returns the job's id."""

    def state(self, job: str) -> JobState:
        """The state of the job; an unknown job has ended."""

    def queued(self, folder: Path, names: Collection[str]) -> dict[str, QueuedJob]:
        """The caller's jobs with these names that wait or run and were submitted in ``folder``, by name.

        Under Slurm, the name is the job's comment; PBS keeps none, so whoever submits notes the job's id in PBS_JOBS.
        The scheduler is queried once.
        """

    def cancel_command(self, job: str) -> list[str]:
        """The command that cancels the job, waiting or running."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Slurm:
    """sbatch, squeue, scancel."""

    environ: Mapping[str, str]
    name: SchedulerName = "slurm"

    def submit(self, script: Path, options: Sequence[str]) -> str:
        command = ["sbatch", "--parsable", *options, str(script)]
        return _submitted(command, _SLURM_JOB, self.environ)

    def state(self, job: str) -> JobState:
        command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T|%r|%N"]
        if (match := _SLURM_STATE.search(_query(command, self.environ).stdout)) is None:
            return JobState(phase="ended", words="no longer known")
        state, reason, nodes = match.groups()
        if state in _SLURM_ENDED:
            return JobState(phase="ended", words=state, failure=_SLURM_ENDS.get(state, ""))
        if state in _SLURM_WAITING:
            return JobState(phase="waiting", words=f"{state} ({reason})", stuck=_stuck_in_slurm(reason))
        return JobState(phase="running", words=f"{state} on {nodes}")

    def queued(self, folder: Path, names: Collection[str]) -> dict[str, QueuedJob]:
        command = ["squeue", "--me", "--noheader", "--format=%i|%T|%k|%Z|%r"]
        rows = [line.split("|", maxsplit=4) for line in _query(command, self.environ).stdout.splitlines()]
        folders, jobs = {str(folder), str(folder.resolve())}, {}
        for job, state, comment, work_folder, reason in (fields for fields in rows if len(fields) == _SLURM_FIELDS):
            if comment in names and work_folder in folders:
                stuck = _stuck_in_slurm(reason) if state in _SLURM_WAITING else ""
                jobs[comment] = QueuedJob(job=job, stuck=stuck)
        return jobs

    def cancel_command(self, job: str) -> list[str]:
        return ["scancel", job]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pbs:
    """qsub, qstat, qdel of OpenPBS and PBS Professional."""

    environ: Mapping[str, str]
    name: SchedulerName = "pbs"

    def submit(self, script: Path, options: Sequence[str]) -> str:
        command = ["qsub", *options, str(script)]
        return _submitted(command, _PBS_JOB, self.environ)

    def state(self, job: str) -> JobState:
        result = _query(["qstat", "-x", "-f", job], self.environ)
        if result.returncode:
            return JobState(phase="ended", words="no longer known")
        attributes = dict(_PBS_ATTRIBUTE.findall(_unwrapped(result.stdout)))
        state = attributes.get("job_state", "")
        if state in _PBS_ENDED:
            return JobState(phase="ended", words=state, failure=_pbs_end(attributes.get("Exit_status", "")))
        is_running = state in _PBS_RUNNING
        where = attributes.get("exec_host" if is_running else "comment", "")
        words = f"state {state}" + (f", {where}" if where else "")
        if is_running:
            return JobState(phase="running", words=words)
        return JobState(phase="waiting", words=words, stuck=where if where.startswith(_PBS_NEVER) else "")

    def queued(self, folder: Path, names: Collection[str]) -> dict[str, QueuedJob]:
        noted = {name: folder / PBS_JOBS / name for name in names}
        ids = {path.read_text(encoding="utf-8"): name for name, path in noted.items() if path.is_file()}
        if not ids:
            return {}
        command = ["qstat", "-x", "-f", *ids]  # it fails if one of them is no longer known
        result = run_command(command, env=self.environ, timeout_s=_LIMIT_S, check=False)
        jobs = {}
        for job, text in _PBS_ENTRY.findall(_unwrapped(result.stdout)):
            attributes = dict(_PBS_ATTRIBUTE.findall(text))
            if job in ids and attributes.get("job_state") not in _PBS_ENDED:
                comment = attributes.get("comment", "")
                jobs[ids[job]] = QueuedJob(job=job, stuck=comment if comment.startswith(_PBS_NEVER) else "")
        return jobs

    def cancel_command(self, job: str) -> list[str]:
        return ["qdel", job]


def remedy_for(reason: str) -> Literal["fewer jobs", "less", ""]:
    """What would let a job start that a scheduler rejects or keeps waiting for this reason; "" if unknown."""
    return "fewer jobs" if _TOO_MANY.search(reason) else "less" if _TOO_MUCH.search(reason) else ""


def _stuck_in_slurm(reason: str) -> str:
    """The reason of a waiting job, "" if it only waits for its turn."""
    return "" if _SLURM_TURN.fullmatch(reason) else reason


def _query(command: Sequence[str], environ: Mapping[str, str]) -> CommandResult:
    """Query the scheduler about jobs. Raises CommandError if that failed for a reason other than an unknown job."""
    result = run_command(command, env=environ, timeout_s=_LIMIT_S, check=False)
    if result.returncode and not _NOT_KNOWN.search(result.stderr):
        raise CommandError(f"{command[0]}: exit status {result.returncode}\n{result.tail()}")
    return result


def _submitted(command: Sequence[str], pattern: re.Pattern[str], environ: Mapping[str, str]) -> str:
    """The id of the job that the command submits, in its output among a site's notices. Raises CommandError."""
    perhaps = "the job may have been submitted anyway: check with squeue or qstat"
    try:
        output = run_command(command, env=environ, timeout_s=_LIMIT_S).stdout
    except CommandTimeoutError as err:
        raise CommandError(err.message, hint=perhaps) from None
    if (match := pattern.search(output.strip())) is None:
        raise CommandError(f"{command[0]}: expected the job's id, got {output.strip()!r}", hint=perhaps)
    return match[1]


def _unwrapped(output: str) -> str:
    """qstat's output with long lines joined: it continues them on the next line, after a tab."""
    return output.replace("\n\t", "")


def _pbs_end(status: str) -> str:
    """A sentence about an end that Exit_status says was not the script's; "" if it was, or nothing is said."""
    if not status.removeprefix("-").isdecimal():
        return ""
    number = int(status)
    if number == _PBS_WALL_TIME:
        return "it reached its time limit"
    if number == _PBS_MEMORY:
        return "it ran out of memory"
    if number < 0:
        return f"PBS could not run it (Exit_status {number})"
    return f"signal {number - _PBS_SIGNALS} ended it, as qdel does" if number > _PBS_SIGNALS else ""


def scheduler_of(name: SchedulerName, environ: Mapping[str, str]) -> Scheduler:
    """The scheduler of that name; its commands are looked up on the PATH of ``environ``."""
    return _Slurm(environ=environ) if name == "slurm" else _Pbs(environ=environ)
