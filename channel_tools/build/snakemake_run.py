# SPDX-License-Identifier: BSD-3-Clause
"""Runs a workflow of builds with Snakemake, and gathers the results of its jobs."""

from __future__ import annotations

import contextlib
import functools
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.failures import indented_tail, log_tail, lost_error
from channel_tools.build.model import BuildJob, BuildResult
from channel_tools.build.node import lock_of
from channel_tools.build.remote import BUILDS_FILE, read_outcome, results_of
from channel_tools.build.run import held_back
from channel_tools.build.snakemake import EVENTS_FILE, PBS, SLURM, unlock_command, workflow_environ
from channel_tools.build.submissions import BUILD, Submissions
from channel_tools.system.errors import BuildError, CommandError
from channel_tools.system.files import exclusive_lock, is_locked, read_tail
from channel_tools.system.processes import Deadline, run_command, running_program, wait_for_any
from channel_tools.system.schedulers import scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence

    from channel_tools.build.model import BuildPlaces
    from channel_tools.build.submissions import LostJobs
    from channel_tools.system.errors import ChannelToolsError
    from channel_tools.system.processes import Program
    from channel_tools.system.schedulers import QueuedJob, Scheduler, SchedulerName

_PROGRAM = "snakemake"
_RUNNING = "running"
"""The file that exists in a workflow's folder while Snakemake runs there, and after it was killed."""
_COMMENT: Mapping[SchedulerName, str] = {"slurm": f"rule_{BUILD}_wildcards_", "pbs": ""}
"""What precedes the stem in a job's name: Snakemake's plugin for Slurm gives each job its rule and wildcards."""
_USAGE_STATUS = 2
"""The exit status of a command line or profile with a mistake."""
_LOCK = "snakemake.lock"
_LOCKED = ("flock", "--no-fork", "--wait", "60")
"""What precedes a command so that it and all processes that it starts hold a lock."""
_LOOK_S = 0.5
_CANCEL_S = 60.0
_EARLIER_S = 300.0
_UNLOCK_S = 300.0
_NO_RESULT = "its job left no result: cancelled, out of time, or never started"
_LOST_HINT = (
    "run the same command again: finished packages are kept; for more time or memory, or fewer jobs at once, see"
    " docs/how-to/build-on-a-cluster.md"
)
_REFUSED_HINT = "correct the profile that --on names, or install what it needs: see docs/how-to/build-on-a-cluster.md"


def run_workflow(
    command: Sequence[str],
    folder: Path,
    jobs: Sequence[BuildJob],
    *,
    places: BuildPlaces,
    environ: Mapping[str, str],
    on: str = SLURM,
    on_state: Callable[[str], None] = lambda _state: None,
    on_warning: Callable[[str], None] = lambda _line: None,
) -> Generator[BuildResult]:
    """Run Snakemake to its end; yields every job's result once, when it is known.

    ``on`` is as in snakemake_command. ``on_state`` gets a line on the progress whenever it changes, ``on_warning`` one
    for each job that will not start. Closing the generator early cancels the jobs, as does any end of this process. If
    Snakemake waits for a job that the scheduler has forgotten, it is killed and started again; jobs go on meanwhile.
    Raises CommandError if Snakemake ends before it has started anything.
    """
    places.logs.mkdir(parents=True, exist_ok=True)
    gathering = _Gathering(jobs, folder / BUILDS_FILE, places)
    log = places.logs / f"{_PROGRAM}.log"
    scheduler = scheduler_of("pbs" if on == PBS else "slurm", environ)
    watch = _Watch(scheduler, folder, jobs, environ)
    while True:
        submissions = Submissions(folder / EVENTS_FILE, functools.partial(_queued, scheduler, folder))
        with watch.running(command, log) as program:
            while not (submissions.has_forgotten or wait_for_any([program.descriptor], Deadline.after(_LOOK_S))):
                yield from gathering.new()
                gathering.tell(on_state)
                for line in submissions.warnings(gathering.unfinished):
                    on_warning(line)
            if submissions.has_forgotten:  # on an interrupt, it would cancel the jobs that run
                program.process.kill()
            status = program.end_in_words()
        yield from gathering.new()
        if not submissions.has_forgotten:
            break
    submissions.read()
    if program.process.returncode and not submissions.has_begun and gathering.has_no_results:
        raise _start_error(status, log, is_usage=program.process.returncode == _USAGE_STATUS)
    yield from gathering.remaining(log, submissions.lost)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A workflow's folder in which Snakemake runs, and the scheduler of its jobs."""

    scheduler: Scheduler
    folder: Path
    jobs: Sequence[BuildJob]
    environ: Mapping[str, str]

    @contextlib.contextmanager
    def running(self, command: Sequence[str], log: Path) -> Iterator[Program]:
        """Snakemake, which the caller waits for; on an error, its jobs are cancelled.

        While it runs, and after it was killed, there is a file in the folder; if that is there already, what was locked
        is unlocked.
        """
        mark = self.folder / _RUNNING
        if mark.exists():
            unlock = unlock_command(Path(command[0]), self.folder)
            run_command(unlock, env=self.environ, cwd=self.folder, timeout_s=_UNLOCK_S)
        mark.touch()
        locked = [*_LOCKED, str(self.folder / _LOCK), *command]
        environ = workflow_environ(self.environ)
        with (
            running_program(
                _PROGRAM, locked, env=environ, cwd=self.folder, log=log, death_signal=signal.SIGINT
            ) as program,
            _cancelled_on_error(program, self._cancel),
        ):
            yield program
            if program.process.returncode >= 0:
                mark.unlink()

    def _cancel(self) -> None:
        """Cancel the jobs of the workflow that wait or run, unless the scheduler does not answer."""
        with contextlib.suppress(CommandError):
            for job in _queued(self.scheduler, self.folder, [job.stem for job in self.jobs]).values():
                command = self.scheduler.cancel_command(job.job)
                run_command(command, env=self.environ, timeout_s=_CANCEL_S, check=False)


def await_earlier_run(folder: Path, note: Callable[[str], None]) -> None:
    """Wait until no Snakemake of a command that was killed runs in the workflow's folder.

    It may be cancelling its jobs, and adding a package to the channel, whose lock the caller must not hold. Its
    processes hold a lock themselves. Raises ChannelError if they do not end.
    """
    lock = folder / _LOCK
    if is_locked(lock):
        note(f"waiting for Snakemake of an earlier command in {folder}, which cancels its jobs")
        with exclusive_lock(lock, resource=f"the workflow {folder}", timeout_s=_EARLIER_S):
            pass


@contextlib.contextmanager
def _cancelled_on_error(program: Program, cancel_others: Callable[[], None]) -> Iterator[None]:
    """Have Snakemake cancel its jobs on an error: it does at SIGINT, while at SIGTERM it waits for them.

    It leaves those that it is submitting or asking about at that moment, which are then for ``cancel_others``.
    """
    try:
        yield
    except BaseException:
        program.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.process.wait(timeout=_CANCEL_S)
        cancel_others()
        raise


def _queued(scheduler: Scheduler, folder: Path, stems: Collection[str]) -> dict[str, QueuedJob]:
    """The jobs for the packages with these stems that wait or run, by stem."""
    names = {_COMMENT[scheduler.name] + stem: stem for stem in stems}
    return {names[name]: job for name, job in scheduler.queued(folder, names).items()}


def _start_error(status: str, log: Path, *, is_usage: bool) -> CommandError:
    """The error for a Snakemake that has started nothing; after pages of options, its last line says why."""
    output = indented_tail(read_tail(log).strip().rpartition("\n")[2]) if is_usage else log_tail(log)
    return CommandError(f"{_PROGRAM}: {status} before it started a build\n{output}\nlog: {log}", hint=_REFUSED_HINT)


class _Gathering:
    """Collects results as they appear in the workflow's folder, and knows which jobs have none yet."""

    def __init__(self, jobs: Sequence[BuildJob], builds_file: Path, places: BuildPlaces) -> None:
        self._waiting = {job.stem: job for job in jobs}
        self._builds_file = builds_file
        self._places = places
        self._done = self._failed = 0
        self._told = ""

    def new(self) -> Iterator[BuildResult]:
        """Results that have appeared since the last call, and those of all jobs that they hold back."""
        folder = results_of(self._builds_file, "").folder
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        for stem, job in list(self._waiting.items()):
            if stem not in self._waiting:
                continue
            if f"{stem}.admitted" in names or f"{stem}.failed" in names:
                yield from self._ended(job, self._result(job))

    def tell(self, on_state: Callable[[str], None]) -> None:
        """Report the progress of the builds, if it has changed since the last call."""
        running = self._running()
        failed = f"{self._failed} failed or held back, " if self._failed else ""
        state = f"{self._done} done, {failed}{running} running, {len(self._waiting) - running} waiting"
        if state != self._told:
            self._told = state
            on_state(state)

    def _running(self) -> int:
        """How many jobs build or have built, of which the scheduler tells Snakemake some time later."""
        work = self._places.work
        built = {path.stem for path in results_of(self._builds_file, "").folder.glob("*.built")}
        begun = {path.name for path in work.iterdir()} if work.is_dir() else set()
        locks = {stem: lock_of(work / job.folder_name) for stem, job in self._waiting.items()}
        return sum(stem in built or (lock.name in begun and is_locked(lock)) for stem, lock in locks.items())

    @property
    def unfinished(self) -> Collection[str]:
        """The stems of jobs that have no result."""
        return self._waiting.keys()

    @property
    def has_no_results(self) -> bool:
        """Whether no job has ended."""
        return not (self._done or self._failed)

    def remaining(self, log: Path, lost: Mapping[str, LostJobs]) -> Iterator[BuildResult]:
        """Results for the jobs that left none, after Snakemake has ended; ``log`` is its log."""
        tail = f"\n{log_tail(log)}" if self._waiting else ""
        while self._waiting:
            waiting = {job.file_name for job in self._waiting.values()}
            job = next(job for job in self._waiting.values() if waiting.isdisjoint(job.waits_for))
            if (lost_jobs := lost.get(job.stem)) is not None:
                error: ChannelToolsError = BuildError(lost_jobs.description_of(job.stem), hint=_LOST_HINT)
            else:
                is_built = results_of(self._builds_file, job.stem).built.is_file()
                ending = "was built, but the step that adds it to the channel was ended" if is_built else _NO_RESULT
                error = BuildError(f"{job.stem}: {ending}{tail}\nlog: {log}", hint=_LOST_HINT)
                tail = ""  # the same lines only once
            error = lost_error(error, [self._places.work, self._places.logs, self._places.cache])
            yield from self._ended(job, BuildResult(job=job, status="failed", error=error))

    def _result(self, job: BuildJob) -> BuildResult:
        results = results_of(self._builds_file, job.stem)
        log = self._places.logs / f"{job.stem}.log"
        if results.admitted.is_file():
            outcome = read_outcome(results.admitted)
            return BuildResult(
                job=job,
                status="built",
                log=log,
                package=outcome.package,
                seconds=outcome.seconds,
                usage=outcome.usage,
                notes=outcome.notes,
            )
        outcome = read_outcome(results.failed)
        error = outcome.failure.as_error() if outcome.failure else None
        return BuildResult(job=job, status="failed", log=log, seconds=outcome.seconds, error=error, notes=outcome.notes)

    def _ended(self, job: BuildJob, result: BuildResult) -> Iterator[BuildResult]:
        del self._waiting[job.stem]
        self._done += result.status == "built"
        self._failed += result.status == "failed"
        yield result
        if result.status == "failed":
            for held in held_back(job, self._waiting.values()):
                del self._waiting[held.stem]
                self._failed += 1
                yield BuildResult(job=held, status="not_started")
