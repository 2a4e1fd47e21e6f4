# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan into a channel: as many builds in parallel as allowed, each when what it waits for is in the channel.

One thread waits for the children through descriptors, so the end of a child and an interrupt are both noticed at once.
A package is checked and added to the channel and its index before anything that waits for it starts, since dependents
solve from the channel. What a build is doing is read from the end of its log, for people only.
"""

from __future__ import annotations

import contextlib
import graphlib
import os
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from channel_tools.build.failures import raise_failures
from channel_tools.build.model import BuildResult
from channel_tools.build.node import finished_build, lock_of, remove_build
from channel_tools.build.usage import record_usage
from channel_tools.build.worker import check_paths, clear_work, forget, notes_of, package_of, start_child, usage_of
from channel_tools.channel.publish import add_set, check_package, prefer_packages
from channel_tools.channel.records import cached_package
from channel_tools.channel.store import published_packages
from channel_tools.conda.package import PackageKey
from channel_tools.system.errors import BuildError, ChannelToolsError, ConfigError
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import end_process_group, wait_for_any
from channel_tools.system.progress import duration_in_words
from channel_tools.system.work_folder import make_work_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces
    from channel_tools.build.remote import Outcome
    from channel_tools.build.worker import Child
    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.system.progress import Progress


def builds_lock(work: Path) -> Path:
    """The lock that a command holds which builds in ``work``."""
    return work / ".lock"


@contextlib.contextmanager
def locked_builds(work: Path) -> Iterator[None]:
    """Create and lock the folder that builds run in; the rendered recipes are written under this lock, too.

    Raises ChannelError if another run holds the lock, UsageError if the folder cannot be created.
    """
    make_work_folder(work)
    with exclusive_lock(builds_lock(work), resource=f"the build folder {work}"):
        yield


def build_packages(
    jobs: Sequence[BuildJob],
    options: BuildOptions,
    *,
    writer: ChannelWriter,
    places: BuildPlaces,
    progress: Progress,
    admit: Callable[[Path], PackageInfo | None],
    meanwhile: Callable[[], object] = lambda: None,
    on_result: Callable[[BuildResult], None] | None = None,
) -> list[BuildResult]:
    """Build ``jobs`` into the writer's channel, each in a process of its own; the caller holds ``locked_builds``.

    Environments are solved from the channel and, if its foundation has an address, from there. A failure holds back
    only the packages that wait for it; the others are built. ``admit`` audits every finished package, raises an
    error if it must not be added, and returns what was read from it. ``meanwhile`` is called once, while the first
    builds run; an error from it ends them and is raised. ``on_result`` is called once for every job,
    with its result. At the end, raises the error of the builds that failed (BuildError, SolveError, DiskFullError ...),
    with the last lines of their logs; ConfigError for jobs that wait for each other in a cycle. An interrupt ends all
    builds and their children before it is raised again; packages that are finished by then are in the channel.
    """
    check_order(jobs)
    check_paths(jobs, places)

    def start(job: BuildJob, at_once: int) -> Child:
        share = max(1, options.cores // at_once)
        channels = channels_of(writer.channel)
        return start_child(job, options, places=places, channels=channels, cores=share)

    clear_work(places.work, needed=[job.folder_name for job in jobs])
    results = []

    def enter(package: Path) -> Path:
        return take_in(writer, package, admit=admit, progress=progress)

    with BuildRun(jobs, start=start, enter=enter, progress=progress) as run:
        for result in run.results(options.max_jobs, meanwhile):
            results.append(result)
            if result.usage is not None:
                record_usage(writer.channel, {result.job.stem: result.usage})
            if on_result is not None:
                on_result(result)
    raise_failures(results)
    return results


def take_over_finished(
    nodes: Path,
    jobs: Sequence[BuildJob],
    *,
    writer: ChannelWriter,
    logs: Path,
    admit: Callable[[Path], PackageInfo | None],
    progress: Progress,
    on_result: Callable[[BuildResult], None],
) -> list[BuildResult]:
    """Add to the channel those of ``jobs`` that a cluster's jobs have built in ``nodes`` and that are not in it yet.

    For the caller of build_packages, which builds the others: those that a job is still building, those that wait for
    a package that is to be built, and those that ``admit`` or the channel rejects. Raises ConfigError as
    build_packages does.
    """
    check_order(jobs)
    left = {job.file_name: job for job in jobs}
    order = graphlib.TopologicalSorter({job.file_name: job.waits_for for job in jobs}).static_order()
    results = []

    def enter(package: Path) -> Path:
        return take_in(writer, package, admit=admit, progress=progress)

    for job in [left[name] for name in order if name in left]:
        if not left.keys().isdisjoint(job.waits_for):
            continue
        folder = nodes / job.folder_name
        try:
            entered = _enter_finished(folder, job, enter)
        except ChannelToolsError as err:
            progress.note(f"{job.stem}: the package that a cluster's job has built is not used: {err.message}")
            continue
        if entered is None:
            continue
        remove_build(folder)
        progress.note(f"{job.stem}: added to the channel, a cluster's job has built it")
        del left[job.file_name]
        outcome, package = entered
        if outcome.usage is not None:
            record_usage(writer.channel, {job.stem: outcome.usage})
        log, seconds, usage = logs / f"{job.stem}.log", outcome.seconds, outcome.usage
        result = BuildResult(job=job, status="built", log=log, seconds=seconds, package=package, usage=usage)
        results.append(result)
        on_result(result)
    return results


def _enter_finished(folder: Path, job: BuildJob, enter: Callable[[Path], Path]) -> tuple[Outcome, Path] | None:
    """Add what a cluster's job has built in ``folder`` to the channel.

    Returns None if there is nothing, or it is another user's. Raises the error that keeps the package out.
    """
    try:
        if _finished_elsewhere(folder, job) is None:
            return None
        with exclusive_lock(lock_of(folder), resource=f"the build folder {folder}"):
            if (finished := _finished_elsewhere(folder, job)) is None:
                return None
            outcome, built = finished
            return outcome, enter(built)
    except PermissionError:  # another user's
        return None


def _finished_elsewhere(folder: Path, job: BuildJob) -> tuple[Outcome, Path] | None:
    """The outcome of a cluster's successful job for this package, and the package, if both exist."""
    outcome = finished_build(folder, job)
    if outcome is None or outcome.package is None or not outcome.package.is_file():
        return None
    return outcome, outcome.package


def channels_of(channel: Channel) -> tuple[str, ...]:
    """The addresses that builds into ``channel`` solve from, in order of priority."""
    return (channel.address, *channel.foundation.addresses)


def take_in(
    writer: ChannelWriter, package: Path, *, admit: Callable[[Path], PackageInfo | None], progress: Progress
) -> Path:
    """Add a finished package to the channel, unless it is there already (--force); its path there.

    Raises the error of ``admit`` or of the channel that keeps it out.
    """
    info = admit(package)
    row = check_package(package) if info is None else cached_package(package, info, indexed_ms=0)
    key = PackageKey.of(package)
    path = key.path_in(writer.channel.path)
    digests = {published.path: published.row.digest for published in published_packages(writer.channel)}
    if row.digest is not None and row.digest == digests.get(path):
        progress.note(
            f"{package.name}: built again; published files never change, so the channel keeps the earlier file"
        )
        prefer_packages(writer, [str(key)])
    else:
        add_set(writer, [package], trusted={key: row})
    return path


def check_order(jobs: Sequence[BuildJob]) -> None:
    """Raise ConfigError for a job that is listed twice, and for jobs that wait for each other in a cycle."""
    names = Counter(job.file_name for job in jobs)
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ConfigError(f"{twice[0]} is to be built twice", hint="a plan names each package once")
    try:
        graphlib.TopologicalSorter({job.file_name: job.waits_for for job in jobs}).prepare()
    except graphlib.CycleError as err:
        raise ConfigError(f"these packages wait for each other: {' -> '.join(err.args[1])}") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunningBuild:
    """A build that was started: its process, and its line in the progress display."""

    child: Child
    shown: contextlib.ExitStack


class BuildRun:
    """Runs jobs in an order that their ``waits_for`` allows; leaving its ``with`` block ends those that still run.

    ``start`` starts the child of a job, given how many then share the machine; ``enter`` adds a finished package to
    the channel and returns its path there. It raises the error that keeps the package out.
    """

    def __init__(
        self,
        jobs: Sequence[BuildJob],
        *,
        start: Callable[[BuildJob, int], Child],
        enter: Callable[[Path], Path],
        progress: Progress,
    ) -> None:
        self._waiting = list(jobs)
        self._start = start
        self._enter = enter
        self._progress = progress
        self._running: dict[int, _RunningBuild] = {}
        self._ended: list[tuple[_RunningBuild, float]] = []
        """Those whose packages have not been entered yet, and the seconds that they took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_process_group(*(build.child.process for build in self._running.values()))
        for descriptor in self._running:
            os.close(descriptor)
        for build in self._unfinished():
            _close(build.shown, BuildError(f"{build.child.job.stem}: interrupted"))
        self._running.clear()

    def results(self, max_jobs: int, meanwhile: Callable[[], object] = lambda: None) -> Iterator[BuildResult]:
        """Run everything, at most ``max_jobs`` at once; yields each result when it is known.

        Jobs that are held back have results, too. What waits for none of the packages that were just built starts
        before they are entered. ``meanwhile`` is called once, when the first have started.
        """
        self._launch_ready(max_jobs)
        if self._running:
            meanwhile()
        with self._total() as count:
            while self._running:
                self._await_end()
                while self._ended:
                    self._launch_ready(max_jobs)
                    result = self._enter_first()
                    held = self._hold_back(result.job) if result.status == "failed" else []
                    count(1 + len(held))
                    yield from (result, *held)
                self._launch_ready(max_jobs)

    @contextlib.contextmanager
    def _total(self) -> Iterator[Callable[[int], object]]:
        """A line for all builds together, where there are several; yields what counts finished ones."""
        jobs = len(self._waiting) + len(self._running)
        if jobs <= 1:
            yield lambda _number: None
            return
        with self._progress.task("all builds", total=jobs) as task:
            task.follow(lambda: f"{len(self._running)} running, {len(self._waiting)} waiting")
            yield task.advance

    def _launch_ready(self, max_jobs: int) -> None:
        while len(self._running) < max_jobs and (ready := self._ready()):
            self._launch(ready[0], at_once=min(max_jobs, len(self._running) + len(ready)))

    def _ready(self) -> list[BuildJob]:
        started = {build.child.job.file_name for build in self._unfinished()}
        unfinished = started | {job.file_name for job in self._waiting}
        return [job for job in self._waiting if unfinished.isdisjoint(job.waits_for)]

    def _unfinished(self) -> list[_RunningBuild]:
        """The builds that were started and whose packages have not been entered."""
        return [*self._running.values(), *(build for build, _seconds in self._ended)]

    def _launch(self, job: BuildJob, *, at_once: int) -> None:
        self._waiting.remove(job)
        child = self._start(job, at_once)
        shown = contextlib.ExitStack()
        self._running[os.pidfd_open(child.process.pid)] = _RunningBuild(child=child, shown=shown)
        task = shown.enter_context(self._progress.task(f"building {job.stem}", total=None))
        task.follow(lambda: state_of(child))

    def _await_end(self) -> None:
        """Wait for the end of at least one child."""
        for descriptor in wait_for_any(self._running):
            build = self._running.pop(descriptor)
            self._ended.append((build, build.child.seconds()))
            end_process_group(build.child.process)  # it has ended, but if it was killed, its group may still be alive
            os.close(descriptor)

    def _enter_first(self) -> BuildResult:
        """Enter the package of the build that has ended first, if it made one."""
        build, seconds = self._ended[0]
        child = build.child
        result = BuildResult(job=child.job, status="failed", log=child.log, seconds=seconds)
        try:
            package = self._enter(package_of(child))
        except ChannelToolsError as err:
            del self._ended[0]
            _close(build.shown, err)
            return replace(result, error=err)
        del self._ended[0]
        build.shown.close()
        for note in notes_of(child):
            self._progress.note(note)
        usage = usage_of(child)
        forget(child)
        return replace(result, status="built", package=package, usage=usage)

    def _hold_back(self, failed: BuildJob) -> list[BuildResult]:
        held = held_back(failed, self._waiting)
        self._waiting = [job for job in self._waiting if job not in held]
        return [BuildResult(job=job, status="not_started") for job in held]


def held_back(failed: BuildJob, waiting: Iterable[BuildJob]) -> list[BuildJob]:
    """Those of ``waiting`` that wait for ``failed``, directly or through others."""
    lost_jobs, left = [failed], list(waiting)
    while blocked := next(
        (job for job in left if not {other.file_name for other in lost_jobs}.isdisjoint(job.waits_for)), None
    ):
        left.remove(blocked)
        lost_jobs.append(blocked)
    return lost_jobs[1:]


def state_of(child: Child) -> str:
    """What a build is doing, and how long it took before, as far as either is known."""
    expected = "" if child.job.expected_s is None else f"took {duration_in_words(child.job.expected_s)} before"
    return ", ".join(part for part in (phase_of(child.log), expected) if part)


def _close(shown: contextlib.ExitStack, error: ChannelToolsError) -> None:
    """End the progress display of a step that failed with ``error``."""
    shown.__exit__(type(error), error, None)


_TAIL_BYTES = 1 << 16
_STARTS = (
    ("sources", re.compile(rb"^(?:Fetching source|Copied \d+ files)", re.MULTILINE)),
    ("environment", re.compile(rb"^  Platform:", re.MULTILINE)),
    ("compile", re.compile(rb"Successfully updated the host environment", re.MULTILINE)),
    ("package", re.compile(rb"^Copying done!", re.MULTILINE)),
    ("tests", re.compile(rb"^Collecting tests", re.MULTILINE)),
)
"""The phases and the lines that begin them; the one whose line is the last is the present one."""
_NINJA = re.compile(rb"\[(\d+)/(\d+)\]")
_MAKE = re.compile(rb"^\[ *(\d+)%\]", re.MULTILINE)


def phase_of(log: Path) -> str:
    """``sources``, ``environment``, ``compile 12 of 345``, ``package`` or ``tests``; "" if the log does not say."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES)
    except OSError:
        return ""
    places = [(matches[-1].start(), name) for name, start in _STARTS if (matches := list(start.finditer(tail)))]
    position, phase = max(places, default=(0, ""))
    counted = tail[position:]
    if phase in {"", "compile"}:
        if steps := _NINJA.findall(counted):
            done, total = (int(number) for number in steps[-1])
            return f"compile {done} of {total}"
        if shares := _MAKE.findall(counted):
            return f"compile {int(shares[-1])} %"
    return phase
