# SPDX-License-Identifier: BSD-3-Clause
"""Job scripts for Slurm and PBS, and running one: submitting it, following it, cancelling it if this process ends.

A script requests resources from the scheduler and runs the same command in the job, which finds the job's hosts by
itself. So there is only one way of starting ranks, and the job's output shows its commands and variables.

The job's output is written to files in a folder that both sides can access, and is passed on here as it appears; the
last file has the exit status of its command. The scheduler is asked only for what is in no file: that the job waits, or
that it did not end by its script.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.system.counting import counted
from channel_tools.system.errors import CommandError, JobError, UsageError, signals_raised_afterwards
from channel_tools.system.processes import Deadline, run_command
from channel_tools.system.schedulers import remedy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.system.schedulers import JobState, Scheduler, SchedulerName

OUTPUT, LOG, EXIT_CODE, SCHEDULER_LOG = "output", "log", "exit-code", "scheduler.log"
ASK_EVERY_S = 2.0
"""How often the scheduler is polled; sites want at most one query in a second or two."""
_SILENCE_LIMIT_S = 300.0
_FILES_LIMIT_S = 60.0
_CANCEL_LIMIT_S = 60.0
_ADVICE = {
    "fewer jobs": "; run it again when your other jobs have ended",
    "less": (
        "; give fewer --nodes or --ranks-per-node, less --time, or another partition or queue"
        " (--submit-option=--partition=NAME, --submit-option=-q --submit-option=NAME)"
    ),
    "": "",
}
"""Advice by what lets a job start (remedy_for)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFolder:
    """The folder with a job's script and files."""

    path: Path

    @property
    def log(self) -> Path:
        """The file with the job's stderr."""
        return self.path / LOG

    def redirected(self, command: Sequence[str]) -> str:
        """Shell lines that run the command with output to the files; ``exit-code`` appears atomically at its end."""
        output, log, code = (shlex.quote(str(self.path / name)) for name in (OUTPUT, LOG, EXIT_CODE))
        return (
            f"{shlex.join(command)} > {output} 2> {log}\n"
            f"code=$?\necho $code > {code}.part && mv {code}.part {code}\nexit $code\n"
        )

    def exit_code(self) -> int | None:
        """The command's exit code, None while it runs."""
        with contextlib.suppress(FileNotFoundError):
            return int((self.path / EXIT_CODE).read_text(encoding="utf-8"))
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """Receives the output of a job: lines about it, and its command's stdout and stderr."""

    note: Callable[[str], None]
    output: Callable[[bytes], None]
    errors: Callable[[bytes], None]


class _Relay:
    """Passes on what was added to a file since the last call."""

    def __init__(self, path: Path, write: Callable[[bytes], None]) -> None:
        self._path, self._write, self._done = path, write, 0

    def look(self) -> None:
        """Pass on what is new."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as stream:
            stream.seek(self._done)
            while chunk := stream.read(1 << 16):
                self._write(chunk)
                self._done += len(chunk)


def run_job_script(
    scheduler: Scheduler,
    folder: JobFolder,
    script: Path,
    *,
    options: Sequence[str],
    asks: str,
    environ: Mapping[str, str],
    listener: Listener,
    ask_every_s: float = ASK_EVERY_S,
) -> int:
    """Submit the script, wait for its end and pass on its output; returns its command's exit code.

    ``asks`` describes the requested resources, for messages. If this process ends early, other than by kill -9, the job
    is cancelled. Raises JobError for a job that did not end by its command, and CommandError if the scheduler does not
    answer for five minutes.
    """
    cancel: list[str] = []
    try:
        with signals_raised_afterwards():  # a job whose ID is not known yet could not be cancelled
            job = _submit(scheduler, script, options, asks)
            cancel = scheduler.cancel_command(job)
        words = f"job {job} of {scheduler.name} submitted, its log: {folder.log}; to cancel it: {shlex.join(cancel)}"
        listener.note(words)
        state = _Follower(scheduler, job, folder, listener, asks).follow(ask_every_s)
    except BaseException:
        if cancel:
            try:
                run_command(cancel, env=environ, timeout_s=_CANCEL_LIMIT_S)
                listener.note(f"job {job} cancelled")
            except CommandError as err:  # the first error is what ends this; the job may be running still
                listener.note(f"job {job} could not be cancelled ({err.message}); cancel it: {shlex.join(cancel)}")
        raise
    code = folder.exit_code()
    if code is None or state.failure:
        how = state.failure or f"it left no result ({state.words})"
        hint = f"its log is {folder.log}, the scheduler's own {folder.path / SCHEDULER_LOG}"
        raise JobError(f"job {job} of {scheduler.name} did not complete: {how}", hint=hint)
    return code


def _submit(scheduler: Scheduler, script: Path, options: Sequence[str], asks: str) -> str:
    try:
        return scheduler.submit(script, options)
    except CommandError as err:
        otherwise = "; change that by --submit-option, or in the script that --emit writes"
        advice = _ADVICE[remedy_for(err.message)] or otherwise
        raise CommandError(err.message, hint=err.hint or f"it requests {asks}{advice}") from None


class _Follower:
    """Waits for a job's end and passes on its output. ``asks`` is as in run_job_script."""

    def __init__(self, scheduler: Scheduler, job: str, folder: JobFolder, listener: Listener, asks: str) -> None:
        self._scheduler, self._job, self._folder, self._listener = scheduler, job, folder, listener
        self._asks = asks
        self._relays = (_Relay(folder.log, listener.errors), _Relay(folder.path / OUTPUT, listener.output))
        self._reported = ""

    def follow(self, ask_every_s: float) -> JobState:
        """The final state of the job. Raises CommandError if the scheduler does not answer for too long."""
        ended: Deadline | None = None
        while True:
            state = self._ask(ask_every_s)
            for relay in self._relays:
                relay.look()
            if state.phase == "ended":
                # another machine's files may become visible late
                ended = ended or Deadline.after(_FILES_LIMIT_S)
                if state.failure or self._folder.exit_code() is not None or not ended.left_s():
                    break
            elif state.words != self._reported:
                self._reported = state.words
                self._listener.note(self._in_words(state))
            time.sleep(ask_every_s)
        for relay in self._relays:
            relay.look()
        return state

    def _in_words(self, state: JobState) -> str:
        if not state.stuck:
            return f"job {self._job}: {state.words}"
        advice = _ADVICE[remedy_for(state.stuck)]
        return f"job {self._job} cannot start: {state.stuck}; it requests {self._asks}{advice}; to cancel it: Ctrl-C"

    def _ask(self, ask_every_s: float) -> JobState:
        silence = Deadline.after(_SILENCE_LIMIT_S)
        while True:
            try:
                return self._scheduler.state(self._job)
            except CommandError:
                if not silence.left_s():
                    raise
            time.sleep(ask_every_s)


_TIME = re.compile(r"([0-9]{1,3}):([0-5][0-9]):([0-5][0-9])")
LONGEST_TIME = "999:59:59"


def seconds_of(time: str) -> int:
    """Check a job's time limit, HH:MM:SS. Raises UsageError if it is not valid."""
    if (match := _TIME.fullmatch(time)) is None:
        raise UsageError(f"--time: found {time!r}, expected HH:MM:SS", hint="for example --time 02:00:00")
    hours, minutes, seconds = map(int, match.groups())
    return (hours * 60 + minutes) * 60 + seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOptions:
    """What to request from the scheduler: ``time`` is HH:MM:SS, ``gpus`` whether each rank needs a GPU.

    The command runs in ``folder`` with ``variables`` in addition to those of the scheduler.
    """

    scheduler: SchedulerName
    name: str
    ranks: int
    nodes: int
    time: str
    gpus: bool
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def asks(self) -> str:
        """The requested resources, as words."""
        gpus = f", gpus: {self.ranks}" if self.gpus else ""
        return f"nodes: {self.nodes}, ranks: {self.ranks}{gpus}, time: {self.time}"


def job_script(job: JobOptions, command: Sequence[str], *, submit_options: Sequence[str] = ()) -> str:
    """The script that runs ``command`` in a job; ``submit_options`` are further options of sbatch or qsub.

    Raises UsageError for ranks that the nodes cannot share equally, and for a time that is not valid.
    """
    directive = "#SBATCH" if job.scheduler == "slurm" else "#PBS"
    more = (f"{directive} {shlex.join(submit_options)}",) if submit_options else ()
    return "\n".join([*_beginning(job, more), "set -e", *_setup(job), f"exec {shlex.join(command)}"]) + "\n"


def recorded_job_script(job: JobOptions, files: JobFolder, command: Sequence[str]) -> str:
    """As job_script, with the files for run_job_script in ``files``; the scheduler must not rerun the job."""
    log = shlex.quote(str(files.path / SCHEDULER_LOG))
    if job.scheduler == "slurm":
        more = (f"#SBATCH --output={log}", "#SBATCH --no-requeue")
    else:
        more = (f"#PBS -o {log}", "#PBS -r n")
    return "\n".join([*_beginning(job, more), *_setup(job), files.redirected(command)])


def _beginning(job: JobOptions, more: Sequence[str]) -> Iterator[str]:
    seconds_of(job.time)
    each, excess = divmod(job.ranks, job.nodes)
    if excess or not each:
        message = f"{counted(job.ranks, 'rank')} on {counted(job.nodes, 'node')}: each node must have the same number"
        raise UsageError(message, hint="give a --ranks that is a multiple of --nodes")
    yield "#!/bin/bash"
    yield from _slurm(job, each) if job.scheduler == "slurm" else _pbs(job, each)
    yield from more


def _setup(job: JobOptions) -> Iterator[str]:
    yield f"cd {shlex.quote(str(job.folder))} || exit"
    yield from (f"export {name}={shlex.quote(value)}" for name, value in job.variables.items())


def _slurm(job: JobOptions, each: int) -> Iterator[str]:
    yield f"#SBATCH --job-name={job.name}"
    yield f"#SBATCH --nodes={job.nodes}"
    yield f"#SBATCH --ntasks={job.ranks}"
    yield f"#SBATCH --ntasks-per-node={each}"
    if job.gpus:
        yield f"#SBATCH --gpus-per-node={each}"
    yield f"#SBATCH --time={job.time}"


def _pbs(job: JobOptions, each: int) -> Iterator[str]:
    gpus = f":ngpus={each}" if job.gpus else ""
    yield f"#PBS -N {job.name}"
    yield f"#PBS -l select={job.nodes}:ncpus={each}:mpiprocs={each}{gpus}"
    yield "#PBS -l place=scatter"
    yield f"#PBS -l walltime={job.time}"
    yield "#PBS -j oe"
