# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan into a channel, and adds what was built there: checked and put into the indexes one by one."""

from __future__ import annotations

import contextlib
import graphlib
from collections import Counter
from typing import TYPE_CHECKING

from channel_tools.build.failures import raise_failures
from channel_tools.build.model import BuildResult
from channel_tools.build.node import finished_build, lock_of, remove_build
from channel_tools.build.run import BuildRun
from channel_tools.build.usage import record_usage
from channel_tools.build.worker import check_paths, clear_work, start_child
from channel_tools.channel.publish import add_set, check_package, prefer_packages
from channel_tools.channel.records import cached_package
from channel_tools.channel.store import published_packages
from channel_tools.conda.package import PackageKey
from channel_tools.system.errors import ChannelToolsError, ConfigError
from channel_tools.system.files import exclusive_lock
from channel_tools.system.work_folder import make_work_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
