# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan on a cluster: writes it as a Snakemake workflow, and runs Snakemake.

The driver holds the lock of the builds' folder, not the channel's, which each admission takes for itself: a second
driver is rejected, but other commands may write to the channel meanwhile.

Builds on a cluster with Snakemake: the folder of its workflow, and its command.

Snakemake deals with schedulers, partitions and lost jobs; we decide which package is built when and how, and what is
added to the channel. So the Snakefile is the same for every plan. Of Snakemake, only documented options are used, and
the interfaces for those who write a Snakefile or a logger plugin.

Runs a workflow of builds with Snakemake, gathers the results of its jobs, and follows those that it submits.

Snakemake submits a job that its scheduler rejects again with more resources, like any that fails, and says nothing of
one that waits. So what it reports to our logger plugin is read while it runs, and the scheduler is asked why submitted
jobs wait: 3 s after a submission, then at intervals that double up to five minutes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from channel_tools.build import pbs
from channel_tools.build.failures import indented_tail, log_tail, lost_error, raise_failures
from channel_tools.build.model import BuildJob, BuildResult
from channel_tools.build.node import clear_builds, lock_of
from channel_tools.build.remote import BUILDS_FILE, read_outcome, results_of, write_builds
from channel_tools.build.schedule import builds_lock, check_order, held_back
from channel_tools.build.worker import check_paths
from channel_tools.system.document import decode_json
from channel_tools.system.errors import BuildError, CommandError, UsageError
from channel_tools.system.extras import missing
from channel_tools.system.files import absolute_path, read_tail, write_text_atomically
from channel_tools.system.locks import exclusive_lock, is_locked
from channel_tools.system.processes import Deadline, run_command, running_program, wait_for_any
from channel_tools.system.schedulers import remedy_for, scheduler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence

    from channel_tools.build.model import BuildPlaces
    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.requests.build import ClusterRequest
    from channel_tools.system.errors import ChannelToolsError
    from channel_tools.system.processes import Program
    from channel_tools.system.progress import Progress
    from channel_tools.system.schedulers import QueuedJob, Scheduler, SchedulerName
    from channel_tools.system.settings import Settings

SLURM: Final = "slurm"
PBS: Final = "pbs"
EVENTS_FILE: Final = "events.jsonl"
"""What the logger plugin writes in the workflow's folder."""
_PBS_LOGS = "pbs-logs"
_PROGRAM = "snakemake"
_SNAKEFILE = "Snakefile"
_DATA = Path(__file__).with_name("data")
_JOBS_AT_ONCE = 100
_SCONTROL_LIMIT_S = 60.0
_LATENCY_S = 120
"""How long it may take until a job's result is visible here: NFS caches the list of a folder for a minute."""
_OWN_OPTIONS = (
    *("--rerun-incomplete", "--rerun-triggers", "mtime", "--latency-wait", str(_LATENCY_S), "--keep-going"),
    *("--local-cores", "1", "--scheduler", "greedy", "--nocolor"),
    *("--logger", "channel-tools"),
)
_SLURM_OPTIONS = (
    *("--executor", "slurm", "--slurm-keep-successful-logs", "--retries", "2"),
    *("--slurm-init-seconds-before-status-checks", "10"),
    # where Slurm does not answer, it is asked again every ten seconds: after its last attempt, the plugin forgets all
    # jobs, and waits for ever
    *("--slurm-status-attempts", "1000000", "--max-status-checks-per-second", "0.1"),
)


_SNAKEMAKE = "snakemake"
_RUNNING = "running"
"""The file that exists in a workflow's folder while Snakemake runs there, and after it was killed."""
_BUILD: Final = "build"
"""The Snakefile's rule for a job of the scheduler."""
_COMMENT: Mapping[SchedulerName, str] = {"slurm": f"rule_{_BUILD}_wildcards_", "pbs": ""}
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


def command_for(settings: Settings, request: ClusterRequest, *, jobs: int | None) -> tuple[str, ...]:
    """The command that will run the workflow, empty for one that is only written; makes nothing.

    ``jobs`` is how many jobs may wait or run at once, None for the profile's number. Raises the error for a request
    that cannot be run.
    """
    check_workflow_folder(request.workflow_folder(settings))
    check_work_is_shared(settings)
    if request.on is None:
        return ()
    environ, folder = settings.environ, request.workflow_folder(settings)
    return tuple(snakemake_command(find_snakemake(environ), folder, on=request.on, jobs=jobs, environ=environ))


def check_work_is_shared(settings: Settings) -> None:
    """Raise UsageError if the work folder is neither in the output folder nor in the cache, which machines share."""
    if not any(settings.work.is_relative_to(folder) for folder in (settings.output, settings.cache)):
        message = f"{settings.work}: builds would run in this folder, which other machines cannot access"
        hint = "give --output a folder that they can access, of at most 60 bytes of A-Z a-z 0-9 . _ + @ ~ -"
        raise UsageError(message, hint=hint)


def await_earlier_builds(settings: Settings, request: ClusterRequest, note: Callable[[str], None]) -> None:
    """Wait for what is left of a killed command (await_earlier_run), unless one runs: that locks us out in any case."""
    if not is_locked(builds_lock(settings.work)):
        await_earlier_run(request.workflow_folder(settings), note)


def write_cluster_workflow(settings: Settings, request: ClusterRequest, builds: RemoteBuilds, *, force: bool) -> None:
    """Write the workflow of ``builds``; the caller holds ``locked_builds``.

    The folders of earlier builds are removed, except finished ones that only have to be added to the channel (unless
    ``force``). Raises as build_packages does before it starts, and the errors of write_workflow.
    """
    check_order(builds.jobs)
    check_paths(builds.jobs, builds.places)
    needed = [job.folder_name for job in builds.jobs]
    clear_builds(builds.places.work, keep=() if force else needed, needed=needed)
    write_workflow(request.workflow_folder(settings), builds)


def run_on_cluster(
    command: Sequence[str],
    folder: Path,
    builds: RemoteBuilds,
    *,
    on: str,
    environ: Mapping[str, str],
    progress: Progress,
    on_result: Callable[[BuildResult], None],
) -> list[BuildResult]:
    """Run the workflow in ``folder`` to its end; ``on`` is as in snakemake_command, the rest as in build_packages."""
    results: list[BuildResult] = []
    with progress.task("building on the cluster", total=len(builds.jobs)) as task:
        ended = run_workflow(
            command,
            folder,
            builds.jobs,
            places=builds.places,
            environ=environ,
            on=on,
            on_state=task.show,
            on_warning=progress.note,
        )
        with contextlib.closing(ended):
            for result in ended:
                results.append(result)
                for note in result.notes:
                    progress.note(note)
                on_result(result)
                task.advance(1)
    raise_failures(results)
    return results


def find_snakemake(environ: Mapping[str, str]) -> Path:
    """The path of Snakemake: beside this program's Python, else on the caller's PATH.

    Raises CommandError if there is none, or no flock, which serialises its steps on this machine.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
    if (program := shutil.which(_PROGRAM, path=places)) is None:
        raise missing(_PROGRAM, "cluster", purpose="building on a cluster")
    if shutil.which("flock", path=environ.get("PATH", "")) is None:
        raise CommandError("flock: not found; builds on a cluster need it on the PATH", hint="install util-linux")
    return Path(program)


def check_workflow_folder(folder: Path) -> None:
    """Raise UsageError if ``folder`` contains anything but a workflow that write_workflow wrote."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / BUILDS_FILE).is_file()):
        message = f"{folder}: contains files that are not part of a workflow of builds"
        raise UsageError(message, hint="name a folder that is empty or does not exist")


def write_workflow(folder: Path, builds: RemoteBuilds) -> None:
    """Write the Snakefile and its input files into ``folder``; finished builds of an earlier run are used."""
    (folder / _PBS_LOGS).mkdir(parents=True, exist_ok=True)
    (folder / EVENTS_FILE).unlink(missing_ok=True)
    write_builds(folder / BUILDS_FILE, builds)
    for job in builds.jobs:
        results = results_of(folder / BUILDS_FILE, job.stem)
        for ended in (results.admitted, results.failed):
            ended.unlink(missing_ok=True)
        if results.built.is_file() and not ((package := read_outcome(results.built).package) and package.is_file()):
            results.built.unlink()
    write_text_atomically(folder / _SNAKEFILE, (_DATA / _SNAKEFILE).read_text(encoding="utf-8"))


def workflow_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which Snakemake finds our logger plugin."""
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join([str(_DATA / "plugins"), *filter(None, [environ.get("PYTHONPATH")])]),
    }


def unlock_command(program: Path, folder: Path) -> list[str]:
    """The command that removes the lock that a killed Snakemake has left in the folder."""
    return [str(program), "--snakefile", str(folder / _SNAKEFILE), "--unlock"]


def snakemake_command(
    program: Path, folder: Path, *, on: str, jobs: int | None, environ: Mapping[str, str]
) -> list[str]:
    """The command that runs the workflow; ``on`` is ``slurm``, ``pbs`` or the folder of a Snakemake profile.

    ``jobs`` is how many may wait or run at once, None for the profile's number. Raises UsageError for another ``on``,
    CommandError if the commands of Slurm or PBS are not on the PATH of ``environ``.
    """
    command = [str(program), "--snakefile", str(folder / _SNAKEFILE), *_OWN_OPTIONS]
    if on == SLURM:
        return [*command, *_SLURM_OPTIONS, *_status_options(environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if on == PBS:
        return [*command, *_pbs_options(folder, environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if not Path(on).is_dir():
        message = f"--on {on}: expected {SLURM}, {PBS} or a folder"
        raise UsageError(message, hint="name the folder of a Snakemake profile, which has a config.yaml")
    return [*command, "--profile", str(absolute_path(Path(on))), *(["--jobs", str(jobs)] if jobs else [])]


def _pbs_options(folder: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """PBS's commands for the plugin cluster-generic, which fills in the braces and appends the script or job."""
    if shutil.which("qsub", path=environ.get("PATH", "")) is None:
        raise CommandError("qsub: not found; --on pbs needs PBS's commands on the PATH", hint="load PBS's module")
    logs = shlex.quote(f"{folder / _PBS_LOGS}/").replace("{", "{{").replace("}", "}}")
    submit = (
        f"{shlex.join(pbs.command_of('submit'))} {{wildcards.stem}} -N build -r n -j oe -o {logs}"
        " -l select=1:ncpus={threads}:mem={resources.mem_mb}mb"
        # PBS reads this as minutes and seconds, even if there are more than 60 minutes
        " -l walltime={resources.runtime}:00"
    )
    return (
        *("--executor", "cluster-generic", "--retries", "2", "--cluster-generic-submit-cmd", submit),
        *("--cluster-generic-status-cmd", shlex.join(pbs.command_of("state")), "--cluster-generic-cancel-cmd", "qdel"),
    )


def _status_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """How to ask for the state of jobs: as the plugin chooses, but with squeue if Slurm has no job accounting."""
    stated = run_command(["scontrol", "show", "config"], env=environ, timeout_s=_SCONTROL_LIMIT_S).stdout
    storage_type = re.search(r"^AccountingStorageType\s*=\s*(\S+)$", stated, re.MULTILINE)
    without = storage_type is not None and storage_type[1] in {"accounting_storage/none", "(null)"}
    return ("--slurm-status-command", "squeue") if without else ()


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
    log = places.logs / f"{_SNAKEMAKE}.log"
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
        output = log_tail(log)
        if program.process.returncode == _USAGE_STATUS:  # after pages of options, the last line says why
            output = indented_tail(read_tail(log).strip().rpartition("\n")[2])
        raise CommandError(
            f"{_SNAKEMAKE}: {status} before it started a build\n{output}\nlog: {log}", hint=_REFUSED_HINT
        )
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
                _SNAKEMAKE, locked, env=environ, cwd=self.folder, log=log, death_signal=signal.SIGINT
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


_FIRST_QUESTION_S, _LONGEST_PAUSE_S = 3.0, 300.0
_FORGOTTEN_S = 600.0
"""For how long a job may be unknown: Snakemake needs up to five minutes to see its end, and to find its result."""
_COMMON_ADVICE = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
"""The interface of Snakemake's plugins appends this to what a plugin reports about a failed job."""
_FORGOTTEN = "is no longer known to the scheduler, and Snakemake still waits for it: Snakemake is started again"
_ADVICE = {
    "fewer jobs": "; submit fewer jobs at once with --jobs N",
    "less": (
        "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
        " (--on FOLDER)"
    ),
    "": "",
}
"""Advice by what lets a job start (remedy_for)."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the logger plugin: a job that starts or is submitted (with a ``stem``), or one that failed."""

    rule: str
    number: int
    stem: str | None = None
    threads: int | None = None
    mem_mb: int | str | None = None
    runtime: int | str | None = None
    message: str | None = None
    submitted: bool = False
    logs: tuple[str, ...] = ()

    def reason(self) -> str:
        """Why it failed, on one line: the message up to the details, which are indented."""
        lines = str(self.message).replace(_COMMON_ADVICE, "").splitlines()
        details = next((number for number, line in enumerate(lines) if line.startswith(" ")), None)
        return "; ".join(line.strip() for line in lines[:details] if line.strip())

    def requests(self) -> str:
        """The requested resources, by their names in variants/stacks.yaml."""
        figures = {"cores": self.threads, "memory_mib": self.mem_mb, "minutes": self.runtime}
        return ", ".join(f"{name}: {figure}" for name, figure in figures.items() if figure)


@dataclass(kw_only=True, slots=True)
class LostJobs:
    """Why the jobs of a package failed, in the words of Snakemake's plugin, and the log of the last that started."""

    reasons: list[str] = field(default_factory=list)
    log: Path | None = None

    def description_of(self, stem: str) -> str:
        """A description of how they ended, with the end of the log and its path."""
        lines = [f"{stem}: its jobs left no result", *(f"    {reason}" for reason in self.reasons if reason)]
        if self.log is not None:
            tail = log_tail(self.log) if self.log.is_file() else ""
            lines += [*([tail] if tail else []), f"log: {self.log}"]
        return "\n".join(lines)


class Submissions:
    """The jobs in the logger plugin's file while Snakemake runs.

    ``queued`` returns those of the packages with these stems that wait or run; ``clock`` returns seconds.
    """

    def __init__(
        self,
        events: Path,
        queued: Callable[[Collection[str]], Mapping[str, QueuedJob]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events, self._queued, self._clock = events, queued, clock
        self._read_bytes = 0
        self._stems: dict[int, str] = {}
        """The stem of each job, by Snakemake's number."""
        self._requests: dict[str, str] = {}
        """The resources that the last job for each stem requests."""
        self._told: dict[tuple[str, str], str] = {}
        self._unknown_since_s: dict[str, float | None] = {}
        """For each stem whose job the scheduler has known, since when it does not; None while it does."""
        self._pause_s = self._due_s = 0.0
        self.lost: dict[str, LostJobs] = {}
        """By stem, the jobs that left no result or that were rejected."""
        self.has_begun = False
        """Whether Snakemake has started or submitted any job."""
        self.has_forgotten = False
        """Whether Snakemake waits for a job that the scheduler has forgotten, which it would do for ever."""

    def warnings(self, unfinished: Collection[str]) -> Iterator[str]:
        """Lines about jobs of ``unfinished`` (stems) that cannot start or end, once for each reason."""
        for stem, requests, reason in self.read():
            yield from self._warning(stem, "was rejected", reason, requests)
        for stem, job in self._ask(unfinished).items():
            if job.stuck:
                yield from self._warning(stem, f"{job.job} cannot start", job.stuck, self._requests[stem])
        yield from self._forgotten(unfinished)

    def _forgotten(self, unfinished: Collection[str]) -> Iterator[str]:
        for stem, since_s in self._unknown_since_s.items():
            if stem in unfinished and since_s is not None and self._clock() - since_s >= _FORGOTTEN_S:
                self._unknown_since_s[stem] = math.inf  # told
                self.has_forgotten = True
                yield f"{stem}: its job {_FORGOTTEN}"

    def _warning(self, stem: str, outcome: str, words: str, requests: str) -> Iterator[str]:
        if self._told.get((stem, outcome)) == words:
            return
        self._told[stem, outcome] = words
        yield f"{stem}: its job {outcome}: {words}; it requests {requests}{_ADVICE[remedy_for(words)]}"

    def read(self) -> list[tuple[str, str, str]]:
        """Read what was added to the file; returns the jobs that were rejected: stem, requested resources, reason."""
        rejected: list[tuple[str, str, str]] = []
        for event in self._new():
            self.has_begun = True
            if event.rule != _BUILD:
                continue
            if event.stem is not None:
                self._stems[event.number], self._requests[event.stem] = event.stem, event.requests()
                self._unknown_since_s.pop(event.stem, None)
                self._pause_s, self._due_s = _FIRST_QUESTION_S, self._clock() + _FIRST_QUESTION_S
            elif (stem := self._stems.get(event.number)) is not None:
                self._lose(stem, event)
                if not event.submitted:
                    rejected.append((stem, self._requests[stem], event.reason()))
        return rejected

    def _new(self) -> Iterator[_Event]:
        """The lines that were completed since the last call."""
        try:
            with self._events.open("rb") as stream:
                stream.seek(self._read_bytes)
                new = stream.read()
        except FileNotFoundError:  # Snakemake has not loaded the plugin yet
            return
        new = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        for line in new.splitlines():
            yield decode_json(line, _Event)

    def _lose(self, stem: str, event: _Event) -> None:
        jobs = self.lost.setdefault(stem, LostJobs())
        reason = event.reason()
        if event.submitted or reason not in jobs.reasons:
            jobs.reasons.append(reason)
        jobs.log = Path(event.logs[-1]) if event.logs else jobs.log

    def _ask(self, unfinished: Collection[str]) -> Mapping[str, QueuedJob]:
        """The jobs that wait or run, by stem; none if it is not time to ask, or the scheduler does not answer."""
        stems, now_s = [stem for stem in self._requests if stem in unfinished], self._clock()
        if not stems or now_s < self._due_s:
            return {}
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._due_s = now_s + self._pause_s
        try:
            queued = self._queued(stems)
        except CommandError:
            return {}
        for stem in stems:
            if stem in queued:
                self._unknown_since_s[stem] = None
            elif stem in self._unknown_since_s and self._unknown_since_s[stem] is None:
                self._unknown_since_s[stem] = now_s
        return queued
