# SPDX-License-Identifier: BSD-3-Clause
"""Runs builds on a cluster with Snakemake: its workflow folder, its command, and the results of its jobs.

Snakemake deals with schedulers, partitions and lost jobs; we decide which package is built when and how, and what is
added to the channel. So the Snakefile is the same for every plan, and Snakemake's own bookkeeping (locks, marks of
incomplete files, times) is not used: results are written atomically, and builds have their own locks.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from channel_tools.build.failures import indented_tail, log_tail, lost_error
from channel_tools.build.forecast import state_in_words, time_left
from channel_tools.build.model import BuildJob, BuildResult
from channel_tools.build.node import lock_of
from channel_tools.build.remote import BUILDS_FILE, read_outcome, results_of, write_builds
from channel_tools.build.run import held_back
from channel_tools.build.submissions import Submissions, lost_jobs
from channel_tools.system.errors import BuildError, CommandError, UsageError
from channel_tools.system.extras import missing
from channel_tools.system.files import is_locked, read_tail, write_text_atomically
from channel_tools.system.processes import Deadline, run_command, running_program, wait_for_any
from channel_tools.system.schedulers import scheduler_of, status_command

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from channel_tools.build.model import BuildPlaces
    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.system.errors import ChannelToolsError
    from channel_tools.system.processes import Program

SLURM: Final = "slurm"
PBS: Final = "pbs"
_PBS_LOGS = "pbs-logs"
_PROGRAM = "snakemake"
_SNAKEFILE = "Snakefile"
_STATUS_CHECKS = "status_checks.py"
_JOBS_AT_ONCE = 100
_LOOK_S = 0.5
_CANCEL_S = 60.0
_SCONTROL_LIMIT_S = 60.0
_NO_RESULT = "its job left no result: cancelled, out of time, or never started"
_LOST_HINT = (
    "run the same command again: finished packages are kept; for more time or memory, or fewer jobs at once, see"
    " docs/how-to/build-on-a-cluster.md"
)
_REFUSED_HINT = "correct the profile that --on names, or install what it needs: see docs/how-to/build-on-a-cluster.md"
_STEP = re.compile(r"^(?:Error in |local)?rule (?:build|admit):$", re.MULTILINE)
_REFUSAL = re.compile(
    r"^(?:\S+: error|Error|WorkflowError):(?!\s+At least one job did not complete)(?s:.*)", re.MULTILINE
)
"""Snakemake's message when it cannot start, after pages of options; a profile may keep it from naming jobs."""
_LATENCY_S = 120
"""How long it may take until a job's result is visible here: NFS caches the list of a folder for a minute."""
_OWN_OPTIONS = ("--nolock", "--ignore-incomplete", "--rerun-triggers", "mtime", "--latency-wait", str(_LATENCY_S))
_SLURM_OPTIONS = (
    *("--executor", "slurm", "--slurm-keep-successful-logs", "--retries", "2"),
    *("--slurm-init-seconds-before-status-checks", "10"),
)


def find_snakemake(environ: Mapping[str, str]) -> Path:
    """The path of Snakemake: beside this program's Python, else on the caller's PATH.

    Raises CommandError if there is none, or no flock, which serialises its steps on this machine.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
    if (found := shutil.which(_PROGRAM, path=places)) is None:
        raise missing(_PROGRAM, "cluster", purpose="building on a cluster")
    if shutil.which("flock", path=environ.get("PATH", "")) is None:
        raise CommandError("flock: not found; builds on a cluster need it on the PATH", hint="install util-linux")
    return Path(found)


def check_workflow_folder(folder: Path) -> None:
    """Raise UsageError if ``folder`` contains anything but a workflow that write_workflow wrote."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / BUILDS_FILE).is_file()):
        message = f"{folder}: contains files that are not part of a workflow of builds"
        raise UsageError(message, hint="name a folder that is empty or does not exist")


def write_workflow(folder: Path, builds: RemoteBuilds) -> None:
    """Write the Snakefile and its input files into ``folder``; finished builds of an earlier run are used."""
    (folder / _PBS_LOGS).mkdir(parents=True, exist_ok=True)
    write_builds(folder / BUILDS_FILE, builds)
    for job in builds.jobs:
        results = results_of(folder / BUILDS_FILE, job.stem)
        for ended in (results.entered, results.admitted, results.failed):
            ended.unlink(missing_ok=True)
        if results.built.is_file() and not ((package := read_outcome(results.built).package) and package.is_file()):
            results.built.unlink()
    own = resources.files("channel_tools.build")
    for source in (own.joinpath("data", _SNAKEFILE), own.joinpath(_STATUS_CHECKS)):
        write_text_atomically(folder / source.name, source.read_text(encoding="utf-8"))


def snakemake_command(
    program: Path, folder: Path, *, on: str, jobs: int | None, environ: Mapping[str, str]
) -> list[str]:
    """The command that runs the workflow; ``on`` is ``slurm``, ``pbs`` or the folder of a Snakemake profile.

    ``jobs`` is how many may wait or run at once, None for the profile's number. Raises UsageError for another ``on``,
    CommandError if the commands of Slurm or PBS are not on the PATH of ``environ``.
    """
    command = [str(program), "--snakefile", str(folder / _SNAKEFILE), *_OWN_OPTIONS, "--keep-going"]
    command += ["--local-cores", "1", "--scheduler", "greedy", "--nocolor"]
    if on == SLURM:
        return [*command, *_SLURM_OPTIONS, *_status_options(environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if on == PBS:
        return [*command, *_pbs_options(folder, environ), "--jobs", str(jobs or _JOBS_AT_ONCE)]
    if not Path(on).is_dir():
        message = f"--on {on}: expected {SLURM}, {PBS} or a folder"
        raise UsageError(message, hint="name the folder of a Snakemake profile, which has a config.yaml")
    return [*command, "--profile", str(Path(on).absolute()), *(["--jobs", str(jobs)] if jobs else [])]


def _pbs_options(folder: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """PBS's commands for the plugin cluster-generic, which fills in the braces and appends the script or job."""
    if shutil.which("qsub", path=environ.get("PATH", "")) is None:
        raise CommandError("qsub: not found; --on pbs needs PBS's commands on the PATH", hint="load PBS's module")
    logs = shlex.quote(f"{folder / _PBS_LOGS}/").replace("{", "{{").replace("}", "}}")
    submit = (
        f"qsub -N build -r n -j oe -o {logs} -l select=1:ncpus={{threads}}:mem={{resources.mem_mb}}mb"
        # PBS reads this as minutes and seconds, even if there are more than 60 minutes
        " -l walltime={resources.runtime}:00"
    )
    return (
        *("--executor", "cluster-generic", "--retries", "2", "--cluster-generic-submit-cmd", submit),
        *("--cluster-generic-status-cmd", shlex.join(status_command(PBS)), "--cluster-generic-cancel-cmd", "qdel"),
    )


def _status_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """How to ask for the state of jobs: as the plugin chooses, but with squeue if Slurm has no job accounting."""
    stated = run_command(["scontrol", "show", "config"], env=environ, timeout_s=_SCONTROL_LIMIT_S).stdout
    kept = re.search(r"^AccountingStorageType\s*=\s*(\S+)$", stated, re.MULTILINE)
    without = kept is not None and kept[1] in {"accounting_storage/none", "(null)"}
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
    for each job that will not start. Closing the generator early cancels the jobs, as does any end of this process.
    Raises CommandError if Snakemake ends before it has started anything.
    """
    places.logs.mkdir(parents=True, exist_ok=True)
    gathering = _Gathering(jobs, folder / BUILDS_FILE, places)
    log = places.logs / f"{_PROGRAM}.log"
    submissions = Submissions(log, scheduler_of("pbs" if on == PBS else "slurm", environ).stuck)
    with (
        running_program(_PROGRAM, command, env=environ, cwd=folder, log=log, death_signal=signal.SIGINT) as program,
        _cancelled_on_error(program),
    ):
        while not wait_for_any([program.descriptor], Deadline.after(_LOOK_S)):
            yield from gathering.new()
            gathering.tell(on_state)
            for line in submissions.warnings(gathering.not_begun()):
                on_warning(line)
        status = program.end_in_words()
    yield from gathering.new()
    if program.process.returncode and not gathering.has_begun(log) and (said := _REFUSAL.search(read_tail(log))):
        message = f"{_PROGRAM}: {status} before it started a build\n{indented_tail(said[0])}\nlog: {log}"
        raise CommandError(message, hint=_REFUSED_HINT)
    yield from gathering.rest(log)


@contextlib.contextmanager
def _cancelled_on_error(program: Program) -> Iterator[None]:
    """Have Snakemake cancel its jobs on an error: it does at SIGINT, while at SIGTERM it waits for them."""
    try:
        yield
    except BaseException:
        program.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.process.wait(timeout=_CANCEL_S)
        raise


class _Gathering:
    """Collects results as they appear in the workflow's folder, and knows which jobs have none yet."""

    def __init__(self, jobs: Sequence[BuildJob], builds_file: Path, places: BuildPlaces) -> None:
        self._waiting = {job.stem: job for job in jobs}
        self._builds_file = builds_file
        self._places = places
        self._running: dict[str, float] = {}
        """When each was seen to start, by the clock of this process: those of other machines may be wrong."""
        self._done = self._failed = 0
        self._told: tuple[object, ...] = ()

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
        work, now_s = self._places.work, time.monotonic()
        begun = {path.name for path in work.iterdir()} if work.is_dir() else set()
        locks = {stem: lock_of(work / job.folder_name) for stem, job in self._waiting.items()}
        running = [stem for stem, lock in locks.items() if lock.name in begun and is_locked(lock)]
        self._running = {stem: self._running.get(stem, now_s) for stem in running}
        state = (self._done, self._failed, *running)
        if state == self._told:
            return
        self._told = state
        running_s = {stem: now_s - since_s for stem, since_s in self._running.items()}
        text = state_in_words(
            done=self._done,
            failed=self._failed,
            running=len(running),
            waiting=len(self._waiting) - len(running),
            left_s=time_left([*self._waiting.values()], running_s),
        )
        on_state(text)

    def not_begun(self) -> list[str]:
        """The stems of jobs that have no result and were not running when ``tell`` was last called."""
        return [stem for stem in self._waiting if stem not in self._running]

    def has_begun(self, log: Path) -> bool:
        """Whether there are results, or ``log`` shows a step of the workflow."""
        ended = bool(self._done or self._failed)
        return ended or _STEP.search(log.read_text(encoding="utf-8", errors="replace")) is not None

    def rest(self, log: Path) -> Iterator[BuildResult]:
        """Results for the jobs that left none, after Snakemake has ended; ``log`` is its log."""
        said = f"\n{log_tail(log)}" if self._waiting else ""
        lost = lost_jobs(log) if self._waiting else {}
        while self._waiting:
            waiting = {job.file_name for job in self._waiting.values()}
            job = next(job for job in self._waiting.values() if waiting.isdisjoint(job.waits_for))
            if (found := lost.get(job.stem)) is not None:
                error: ChannelToolsError = BuildError(found.said_of(job.stem), hint=_LOST_HINT)
            else:
                is_built = results_of(self._builds_file, job.stem).built.is_file()
                what = "was built, but the step that adds it to the channel was ended" if is_built else _NO_RESULT
                error = BuildError(f"{job.stem}: {what}{said}\nlog: {log}", hint=_LOST_HINT)
                said = ""  # the same lines only once
            if found is None or not found.is_explained:
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
