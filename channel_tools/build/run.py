# SPDX-License-Identifier: BSD-3-Clause
"""Runs builds in the order that they allow: as many in parallel as allowed, each when what it waits for is entered.

One thread waits for the children through descriptors, so the end of a child and an interrupt are both
noticed at once. A package is added to the channel and its index before anything that waits for it starts, since
dependents solve from the channel.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from channel_tools.build.model import BuildResult
from channel_tools.build.phases import phase_of
from channel_tools.build.worker import forget, notes_of, package_of, usage_of
from channel_tools.system.errors import BuildError, ChannelToolsError
from channel_tools.system.processes import end_process_group, wait_for_any
from channel_tools.system.progress import duration_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildJob
    from channel_tools.build.worker import Child
    from channel_tools.system.progress import Progress


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
