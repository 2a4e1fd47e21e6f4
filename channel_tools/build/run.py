# SPDX-License-Identifier: BSD-3-Clause
"""One run of builds: which jobs wait, which run, which have ended.

It waits for its children through their process descriptors instead of asking in turns, so that an ended child and an
interrupt are both noticed at once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import TYPE_CHECKING, Self

from channel_tools.build.children import forget, package_of
from channel_tools.build.model import BuildJob, BuildResult
from channel_tools.commands import end_process_group
from channel_tools.errors import BuildError, ChannelToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from channel_tools.build.children import Child
    from channel_tools.progress import Progress


class BuildRun:
    """Runs jobs in an order that their ``waits_for`` allows; leaving its ``with`` block ends what still runs.

    ``start`` starts the child of a job and is told how many share the machine then; ``enter`` takes a finished package
    into the channel and says where it is there.
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
        self._poll = select.poll()
        self._running: dict[int, tuple[Child, contextlib.ExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        children = [child for child, _shown in self._running.values()]
        for child in children:  # all at once, so that none waits for the end of another
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.process.pid, signal.SIGTERM)
        for child in children:
            end_process_group(child.process)
        for descriptor, (child, shown) in self._running.items():
            os.close(descriptor)
            _close(shown, BuildError(f"{child.job.stem}: interrupted"))
        self._running.clear()

    def results(self, max_jobs: int) -> Iterator[BuildResult]:
        """Run everything, at most ``max_jobs`` at once; yields results as they come, held back jobs' too."""
        while self._waiting or self._running:
            while len(self._running) < max_jobs and (ready := self._ready()):
                self._launch(ready[0], at_once=min(max_jobs, len(self._running) + len(ready)))
            for result in self._ended():
                yield result
                if result.status == "failed":
                    yield from self._hold_back(result.job)

    def _ready(self) -> list[BuildJob]:
        running = {child.job.file_name for child, _shown in self._running.values()}
        unfinished = running | {job.file_name for job in self._waiting}
        return [job for job in self._waiting if unfinished.isdisjoint(job.waits_for)]

    def _launch(self, job: BuildJob, *, at_once: int) -> None:
        self._waiting.remove(job)
        child = self._start(job, at_once)
        shown = contextlib.ExitStack()
        descriptor = os.pidfd_open(child.process.pid)
        self._running[descriptor] = (child, shown)
        self._poll.register(descriptor, select.POLLIN)
        shown.enter_context(self._progress.task(f"building {job.stem}", total=None))

    def _ended(self) -> list[BuildResult]:
        """Wait until at least one child has ended; the results of all that have."""
        results = []
        for descriptor, _event in self._poll.poll():
            child, shown = self._running[descriptor]
            end_process_group(child.process)  # it has ended; should it have been killed, its group may still live
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._running[descriptor]
            results.append(self._result_of(child, shown))
        return results

    def _result_of(self, child: Child, shown: contextlib.ExitStack) -> BuildResult:
        seconds = child.seconds()
        try:
            package = self._enter(package_of(child))
        except ChannelToolsError as err:
            _close(shown, err)
            return BuildResult(job=child.job, status="failed", log=child.log, seconds=seconds, error=err)
        shown.close()
        forget(child)
        return BuildResult(job=child.job, status="built", log=child.log, seconds=seconds, package=package)

    def _hold_back(self, failed: BuildJob) -> Iterator[BuildResult]:
        """Take out of the queue all that wait for ``failed``, directly or through others."""
        lost = {failed.file_name}
        while hit := next((job for job in self._waiting if not lost.isdisjoint(job.waits_for)), None):
            self._waiting.remove(hit)
            lost.add(hit.file_name)
            yield BuildResult(job=hit, status="not_started")


def _close(shown: contextlib.ExitStack, error: ChannelToolsError) -> None:
    """End the display of a step that did not succeed."""
    shown.__exit__(type(error), error, None)
