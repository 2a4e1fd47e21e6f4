# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan: as many packages in parallel as allowed, each as soon as the packages it waits for are in the channel.

One thread waits for the children through descriptors, so the end of a child and an interrupt are both
noticed at once. A package is added to the channel and its index before anything that waits for it starts, since
dependents solve from the channel.
"""

from __future__ import annotations

import contextlib
import graphlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Self

from channel_tools.build.failures import raise_failures
from channel_tools.build.model import BuildJob, BuildResult
from channel_tools.build.node import finished_build, lock_of, remove_build
from channel_tools.build.resume import resumable_builds
from channel_tools.build.usage import record_usage
from channel_tools.build.worker import (
    Child,
    check_paths,
    clear_work,
    forget,
    notes_of,
    package_of,
    start_child,
    usage_of,
)
from channel_tools.channel.publish import add_set, check_package, prefer_packages
from channel_tools.channel.records import cached_package
from channel_tools.channel.store import published_packages
from channel_tools.conda.package import PackageKey
from channel_tools.system.errors import BuildError, ChannelToolsError, ConfigError
from channel_tools.system.files import exclusive_lock
from channel_tools.system.processes import end_process_group, wait_for_any
from channel_tools.system.work_folder import make_work_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildOptions, BuildPlaces
    from channel_tools.build.remote import Outcome
    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.channel.records import CachedPackage
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.system.fork_server import ForkServer
    from channel_tools.system.progress import Progress


@contextlib.contextmanager
def locked_builds(work: Path) -> Iterator[None]:
    """Create and lock the folder that builds run in; the rendered recipes are written under this lock, too.

    Raises ChannelError if another run holds the lock, UsageError if the folder cannot be created.
    """
    make_work_folder(work)
    with exclusive_lock(work / ".lock", what=f"the build folder {work}"):
        yield


def build_packages(
    jobs: Sequence[BuildJob],
    options: BuildOptions,
    *,
    writer: ChannelWriter,
    places: BuildPlaces,
    workers: ForkServer,
    progress: Progress,
    admit: Callable[[Path], PackageInfo | None],
    meanwhile: Callable[[], object] = lambda: None,
    on_result: Callable[[BuildResult], None] | None = None,
) -> list[BuildResult]:
    """Build ``jobs`` into the writer's channel in children of ``workers``; the caller holds ``locked_builds``.

    Environments are solved from the channel and, if its foundation has an address, from there. A failure holds back
    only the packages that wait for it; the others are built. ``admit`` cleans and audits every finished package, raises
    an error if it must not be added, and returns what was read from it. ``meanwhile`` is called once, while the first
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
        return start_child(job, options, workers=workers, places=places, channels=channels, cores=share)

    resumed = resumable_builds(places.work, jobs, note=progress.note) if options.from_failed else []
    clear_work(places.work, keep=[job.folder_name for job in resumed], needed=[job.folder_name for job in jobs])
    results = []

    def enter(package: Path) -> Path:
        return take_in(writer, package, admit=admit, progress=progress)

    with BuildRun(jobs, start=start, enter=enter, progress=progress) as run:
        for result in run.results(options.max_jobs, meanwhile):
            results.append(result)
            if result.status == "built" and result.usage is not None:
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
    for job in [left[name] for name in order if name in left]:
        if not left.keys().isdisjoint(job.waits_for):
            continue
        folder = nodes / job.folder_name
        try:
            if _finished_elsewhere(folder, job) is None:
                continue
            with exclusive_lock(lock_of(folder), what=f"the build folder {folder}"):
                if (finished := _finished_elsewhere(folder, job)) is None:
                    continue
                outcome, built = finished
                package = take_in(writer, built, admit=admit, progress=progress)
        except PermissionError:  # another user's
            continue
        except ChannelToolsError as err:
            progress.note(f"{job.stem}: the package that a cluster's job has built is not used: {err.message}")
            continue
        remove_build(folder)
        progress.note(f"{job.stem}: added to the channel, a cluster's job has built it")
        del left[job.file_name]
        if outcome.usage is not None:
            record_usage(writer.channel, {job.stem: outcome.usage})
        result = BuildResult(
            job=job,
            status="built",
            log=logs / f"{job.stem}.log",
            seconds=outcome.seconds,
            package=package,
            usage=outcome.usage,
        )
        results.append(result)
        on_result(result)
    return results


def _finished_elsewhere(folder: Path, job: BuildJob) -> tuple[Outcome, Path] | None:
    """The outcome of a cluster's successful job for this package, and the package, if both exist."""
    outcome = finished_build(folder, job)
    if outcome is None or outcome.package is None or not outcome.package.is_file():
        return None
    return outcome, outcome.package


def channels_of(channel: Channel) -> tuple[str, ...]:
    """The addresses that builds into ``channel`` solve from, in order of priority."""
    address = channel.foundation.address
    return (channel.address,) if address is None else (channel.address, address)


def take_in(
    writer: ChannelWriter, package: Path, *, admit: Callable[[Path], PackageInfo | None], progress: Progress
) -> Path:
    """Add a finished package to the channel, unless it is there already (--force); returns its path in the channel.

    Raises the errors of ``admit`` for a package that must not be added.
    """
    enter_packages(writer, {package: admitted_row(package, admit)}, progress=progress)
    return PackageKey.of(package).path_in(writer.channel.path)


def admitted_row(package: Path, admit: Callable[[Path], PackageInfo | None]) -> CachedPackage:
    """The channel's row for a finished package that ``admit`` accepts. Raises the errors of ``admit``."""
    info = admit(package)
    return check_package(package) if info is None else cached_package(package, info, indexed_ms=0)


def enter_packages(writer: ChannelWriter, rows: Mapping[Path, CachedPackage], *, progress: Progress) -> None:
    """Add finished packages, except those built again, to the channel in one change of its indexes; all or none.

    Raises the errors of add_set.
    """
    digests = {published.path: published.row.digest for published in published_packages(writer.channel)}
    keys = {package: PackageKey.of(package) for package in rows}
    again = [
        package
        for package, row in rows.items()
        if row.digest is not None and row.digest == digests.get(keys[package].path_in(writer.channel.path))
    ]
    for package in again:
        progress.note(
            f"{package.name}: built again; published files never change, so the channel keeps the earlier file"
        )
    if again:
        prefer_packages(writer, [str(keys[package]) for package in again])
    if new := [package for package in rows if package not in again]:
        add_set(writer, new, trusted={keys[package]: rows[package] for package in new})


def check_order(jobs: Sequence[BuildJob]) -> None:
    """Raise ConfigError for a job that is listed twice, and for jobs that wait for each other in a cycle."""
    names = Counter(job.file_name for job in jobs)
    if twice := sorted(name for name, count in names.items() if count > 1):
        raise ConfigError(f"{twice[0]} is to be built twice", hint="a plan names each package once")
    try:
        graphlib.TopologicalSorter({job.file_name: job.waits_for for job in jobs}).prepare()
    except graphlib.CycleError as err:
        raise ConfigError(f"these packages wait for each other: {' -> '.join(err.args[1])}") from None


class BuildRun:
    """Runs jobs in an order that their ``waits_for`` allows; leaving its ``with`` block ends those that still run.

    ``start`` starts the child of a job, given how many then share the machine; ``enter`` adds a finished package to the
    channel and returns its path there.
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
        self._running: dict[int, tuple[Child, contextlib.ExitStack]] = {}
        self._ended: list[tuple[Child, contextlib.ExitStack]] = []
        """Those whose packages have not been entered yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_process_group(*(child.process for child, _shown in self._running.values()))
        for descriptor, (child, shown) in self._running.items():
            os.close(descriptor)
            _close(shown, BuildError(f"{child.job.stem}: interrupted"))
        for child, shown in self._ended:
            _close(shown, BuildError(f"{child.job.stem}: interrupted"))
        self._running.clear()

    def results(self, max_jobs: int, meanwhile: Callable[[], object] = lambda: None) -> Iterator[BuildResult]:
        """Run everything, at most ``max_jobs`` at once; yields results as they come, also those of jobs held back.

        What waits for none of the packages that were just built starts before they are entered. ``meanwhile`` is called
        once, when the first have started.
        """
        self._launch_ready(max_jobs)
        if self._running:
            meanwhile()
        while self._running:
            self._await_ended()
            self._launch_ready(max_jobs)
            while self._ended:
                result = self._result_of(*self._ended[0])
                del self._ended[0]
                yield result
                if result.status == "failed":
                    yield from self._hold_back(result.job)
            self._launch_ready(max_jobs)

    def _launch_ready(self, max_jobs: int) -> None:
        while len(self._running) < max_jobs and (ready := self._ready()):
            self._launch(ready[0], at_once=min(max_jobs, len(self._running) + len(ready)))

    def _ready(self) -> list[BuildJob]:
        started = {child.job.file_name for child, _shown in (*self._running.values(), *self._ended)}
        unfinished = started | {job.file_name for job in self._waiting}
        return [job for job in self._waiting if unfinished.isdisjoint(job.waits_for)]

    def _launch(self, job: BuildJob, *, at_once: int) -> None:
        self._waiting.remove(job)
        child = self._start(job, at_once)
        shown = contextlib.ExitStack()
        descriptor = child.process.end_descriptor()
        self._running[descriptor] = (child, shown)
        shown.enter_context(self._progress.task(f"building {job.stem}", total=None))

    def _await_ended(self) -> None:
        """Wait until at least one child has ended."""
        for descriptor in wait_for_any(self._running):
            child, shown = self._running[descriptor]
            end_process_group(child.process)  # it has ended, but if it was killed, its group may still be alive
            os.close(descriptor)
            del self._running[descriptor]
            self._ended.append((child, shown))

    def _result_of(self, child: Child, shown: contextlib.ExitStack) -> BuildResult:
        seconds, usage = child.seconds(), usage_of(child)
        try:
            package = self._enter(package_of(child))
        except ChannelToolsError as err:
            _close(shown, err)
            return BuildResult(job=child.job, status="failed", log=child.log, seconds=seconds, error=err)
        shown.close()
        for note in notes_of(child):
            self._progress.note(note)
        forget(child)
        return BuildResult(job=child.job, status="built", log=child.log, seconds=seconds, package=package, usage=usage)

    def _hold_back(self, failed: BuildJob) -> Iterator[BuildResult]:
        for job in held_back(failed, self._waiting):
            self._waiting.remove(job)
            yield BuildResult(job=job, status="not_started")


def held_back(failed: BuildJob, waiting: Iterable[BuildJob]) -> list[BuildJob]:
    """Those of ``waiting`` that wait for ``failed``, directly or through others."""
    lost, left = [failed], list(waiting)
    while hit := next((job for job in left if not {one.file_name for one in lost}.isdisjoint(job.waits_for)), None):
        left.remove(hit)
        lost.append(hit)
    return lost[1:]


def _close(shown: contextlib.ExitStack, error: ChannelToolsError) -> None:
    """End the progress display of a step that failed with ``error``."""
    shown.__exit__(type(error), error, None)
