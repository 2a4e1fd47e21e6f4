# SPDX-License-Identifier: BSD-3-Clause
"""Runs builds in the order that they allow: as many in parallel as allowed, each when what it waits for is entered.

One thread waits for the children through descriptors, so the end of a child and an interrupt are both
noticed at once. A package is added to the channel and its index before anything that waits for it starts, since
dependents solve from the channel. Each change of the indexes has its cost, so packages that end together are added
together.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from channel_tools.build.forecast import duration_in_words, time_left
from channel_tools.build.model import BuildResult
from channel_tools.build.phases import phase_of
from channel_tools.build.worker import forget, notes_of, package_of, usage_of
from channel_tools.system.errors import BuildError, ChannelToolsError
from channel_tools.system.processes import Deadline, end_process_group, wait_for_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from channel_tools.build.model import BuildJob
    from channel_tools.build.worker import Child
    from channel_tools.system.progress import Progress

TOGETHER_BYTES = 64 << 20
"""The most packages added with another: what waits for that one waits for the audits of all of them."""
_QUICK_S = 2.0
"""A build that took longer is entered at once: it would be lost if this process was killed meanwhile."""
_TOGETHER_S = 0.25
"""How long the package of a quick build waits for others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _RunningBuild:
    """A build that was started: its process, and its line in the progress display."""

    child: Child
    shown: contextlib.ExitStack


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended(_RunningBuild):
    """A build whose process has ended, and whose package, if it made one, has not been entered."""

    seconds: float

    def package(self) -> Path | ChannelToolsError:
        """The package, or why there is none."""
        try:
            return package_of(self.child)
        except ChannelToolsError as err:
            return err


class BuildRun:
    """Runs jobs in an order that their ``waits_for`` allows; leaving its ``with`` block ends those that still run.

    ``start`` starts the child of a job, given how many then share the machine; ``enter`` adds finished packages to the
    channel and returns for each its path there, or the error that keeps it out.
    """

    def __init__(
        self,
        jobs: Sequence[BuildJob],
        *,
        start: Callable[[BuildJob, int], Child],
        enter: Callable[[Sequence[Path]], Mapping[Path, Path | ChannelToolsError]],
        progress: Progress,
    ) -> None:
        self._waiting = list(jobs)
        self._start = start
        self._enter = enter
        self._progress = progress
        self._running: dict[int, _RunningBuild] = {}
        self._ended: list[_Ended] = []
        """Those whose packages have not been entered yet, in the order of their ends."""
        self._until = Deadline.after(0)
        """How long the first of these waits for others."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_process_group(*(build.child.process for build in self._running.values()))
        for descriptor in self._running:
            os.close(descriptor)
        for build in (*self._running.values(), *self._ended):
            _close(build.shown, BuildError(f"{build.child.job.stem}: interrupted"))
        self._running.clear()

    def results(self, max_jobs: int, meanwhile: Callable[[], object] = lambda: None) -> Iterator[list[BuildResult]]:
        """Run everything, at most ``max_jobs`` at once; yields the results, those that came together in one list.

        Jobs that are held back have results, too. What waits for none of the packages that were just built starts
        before they are entered. ``meanwhile`` is called once, when the first have started.
        """
        self._launch_ready(max_jobs)
        if self._running:
            meanwhile()
        with self._total() as count:
            while self._running or self._ended:
                if self._running:
                    self._collect_ended()
                self._launch_ready(max_jobs)
                if not self._expects_more():
                    results = self._enter_ended()
                    count(len(results))
                    yield results
                    self._launch_ready(max_jobs)

    @contextlib.contextmanager
    def _total(self) -> Iterator[Callable[[int], object]]:
        """A line for all builds together, where there are several; yields what counts finished ones."""
        jobs = len(self._waiting) + len(self._running)
        if jobs <= 1:
            yield lambda _number: None
            return
        with self._progress.task("all builds", total=jobs) as task:
            task.follow(self._left_in_words)
            yield task.advance

    def _left_in_words(self) -> str:
        running = [build.child for build in [*self._running.values()]]
        unfinished = [*(child.job for child in running), *self._waiting]
        left_s = time_left(unfinished, {child.job.stem: child.seconds() for child in running})
        left = "" if left_s is None else f"; at least {duration_in_words(left_s)} left"
        return f"{len(running)} running, {len(self._waiting)} waiting{left}"

    def _launch_ready(self, max_jobs: int) -> None:
        while len(self._running) < max_jobs and (ready := self._ready()):
            self._launch(ready[0], at_once=min(max_jobs, len(self._running) + len(ready)))

    def _ready(self) -> list[BuildJob]:
        started = {build.child.job.file_name for build in (*self._running.values(), *self._ended)}
        unfinished = started | {job.file_name for job in self._waiting}
        return [job for job in self._waiting if unfinished.isdisjoint(job.waits_for)]

    def _launch(self, job: BuildJob, *, at_once: int) -> None:
        self._waiting.remove(job)
        child = self._start(job, at_once)
        shown = contextlib.ExitStack()
        self._running[child.process.end_descriptor()] = _RunningBuild(child=child, shown=shown)
        task = shown.enter_context(self._progress.task(f"building {job.stem}", total=None))
        task.follow(lambda: state_of(child))

    def _collect_ended(self) -> None:
        """Wait for the end of a child; if some have ended already, no longer than these wait to be entered."""
        for descriptor in wait_for_any(self._running, self._until if self._ended else None):
            build = self._running[descriptor]
            end_process_group(build.child.process)  # it has ended, but if it was killed, its group may still be alive
            os.close(descriptor)
            del self._running[descriptor]
            if not self._ended:
                self._until = Deadline.after(_TOGETHER_S)
            self._ended.append(_Ended(child=build.child, shown=build.shown, seconds=build.child.seconds()))

    def _expects_more(self) -> bool:
        """Whether those that have ended should wait for others: none was long, and nothing waits for them."""
        if not self._running or self._until.left_s() == 0 or any(build.seconds > _QUICK_S for build in self._ended):
            return False
        file_names = {build.child.job.file_name for build in self._ended}
        return all(file_names.isdisjoint(job.waits_for) for job in self._waiting)

    def _enter_ended(self) -> list[BuildResult]:
        """Enter the packages of the builds that have ended, as many as may be entered together."""
        entering: list[tuple[_Ended, Path | ChannelToolsError]] = []
        room_bytes = TOGETHER_BYTES
        for ended in self._ended:
            package = ended.package()
            room_bytes -= package.stat().st_size if isinstance(package, Path) and package.is_file() else 0
            if entering and room_bytes < 0:
                break
            entering.append((ended, package))
        outcomes = self._enter([package for _ended, package in entering if isinstance(package, Path)])
        results = []
        for ended, package in entering:
            results.append(self._result_of(ended, outcomes[package] if isinstance(package, Path) else package))
            del self._ended[0]
            if results[-1].status == "failed":
                results += self._hold_back(results[-1].job)
        return results

    def _result_of(self, ended: _Ended, outcome: Path | ChannelToolsError) -> BuildResult:
        child = ended.child
        result = BuildResult(job=child.job, status="failed", log=child.log, seconds=ended.seconds)
        if isinstance(outcome, ChannelToolsError):
            _close(ended.shown, outcome)
            return replace(result, error=outcome)
        ended.shown.close()
        for note in notes_of(child):
            self._progress.note(note)
        usage = usage_of(child)
        forget(child)
        return replace(result, status="built", package=outcome, usage=usage)

    def _hold_back(self, failed: BuildJob) -> Iterator[BuildResult]:
        for job in held_back(failed, self._waiting):
            self._waiting.remove(job)
            yield BuildResult(job=job, status="not_started")


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
