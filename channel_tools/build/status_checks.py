# SPDX-License-Identifier: BSD-3-Clause
"""Lets Snakemake notice at once that a scheduler's job has ended, and cancel all jobs that were submitted.

Snakemake's plugin for Slurm polls less and less often while no job ends, down to every three minutes, and has no option
for that (2.8), so it notices late that a job has ended, and the jobs that wait for it start late. Here, a job has ended
when its output exists, which it writes last and atomically; for jobs without output, the scheduler is polled at the
plugin's times.

On an interrupt, Snakemake cancels the jobs on its list. Those that it is submitting or polling are not on the list at
that moment and would run on uselessly. Here, they are cancelled, too.

This file is copied beside the Snakefile, which imports it from there: Snakemake's Python may not have channel_tools, so
only the standard library is used. Only public parts of the interface of executor plugins are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

LOOK_S: Final = 0.5
"""The seconds between two checks for output."""


class _Job(Protocol):
    output: Sequence[str]


class SubmittedJob(Protocol):
    """A job that the scheduler knows (SubmittedJobInfo)."""

    job: _Job


class Executor(Protocol):
    """The part of a plugin's executor (RemoteExecutor) that is used; ``active_jobs`` is empty while it polls."""

    active_jobs: list[SubmittedJob]
    lock: threading.Lock
    logger: logging.Logger
    next_seconds_between_status_checks: float
    wait: bool
    sleep: Callable[[Executor], Awaitable[None]]
    cancel: Callable[[Executor], None]
    cancel_jobs: Callable[[list[SubmittedJob]], None]
    shutdown: Callable[[], None]
    run_jobs: Callable[..., None]
    run_job_pre: Callable[[object], None]
    run_job: Callable[[object], None]
    report_job_submission: Callable[..., None]
    report_job_success: Callable[..., None]
    report_job_error: Callable[..., None]

    def __hash__(self) -> int: ...


class StatusChecks:
    """The jobs of one executor, and when it polls for them.

    ``clock`` returns seconds, ``pause`` waits for a number of them.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._pause = pause
        self._first_interval_s = executor.next_seconds_between_status_checks
        self._asked: dict[int, SubmittedJob] = {}
        """By identity, the jobs of the last poll whose end was not reported."""
        self._submitted: dict[int, SubmittedJob] = {}
        """By identity, all jobs whose end was not reported."""

    async def sleep(self) -> None:
        """Wait between two polls, as long as the plugin would, and report jobs as their output appears."""
        if self.keep_asking():
            self._executor.logger.warning("The scheduler did not answer; asking again.")
        began_s = self._clock()
        while self._executor.wait:
            self._report_ended()
            left_s = began_s + self._executor.next_seconds_between_status_checks - self._clock()
            if left_s <= 0:
                break
            await self._pause(min(LOOK_S, left_s))
        with self._executor.lock:
            self._asked = {id(job): job for job in self._executor.active_jobs}

    def keep_asking(self) -> bool:
        """Have the executor poll for all jobs whose end was not reported; returns whether it had forgotten any.

        The plugin for Slurm (2.8) forgets all of them if Slurm does not answer, and would wait for ever.
        """
        with self._executor.lock:
            active = {id(job) for job in self._executor.active_jobs}
            forgotten = [job for key, job in self._asked.items() if key not in active]
            self._executor.active_jobs += forgotten
        return bool(forgotten)

    def cancel(self, cancel: Callable[[Executor], None]) -> None:
        """Have ``cancel``, the executor's own, cancel all jobs, then those whose submission it had to wait for."""
        with self._executor.lock:
            known = dict(self._submitted)
            self._executor.active_jobs[:] = known.values()
        try:
            cancel(self._executor)
        except Exception:  # a job that cannot be cancelled must not keep the others from being cancelled
            self._executor.shutdown()
            raise
        finally:
            late = [job for key, job in list(self._submitted.items()) if key not in known]
            if late:
                self._executor.cancel_jobs(late)

    def submission_reported(self, job: SubmittedJob) -> None:
        """Called when the executor is about to add the job to its list."""
        self._submitted[id(job)] = job

    def end_reported(self, job: SubmittedJob) -> None:
        """Called when the executor has reported the end of the job to Snakemake."""
        self._asked.pop(id(job), None)
        self._submitted.pop(id(job), None)

    def _report_ended(self) -> None:
        """Report the success of jobs whose output exists; like the plugin, poll again soon if there are any."""
        with self._executor.lock:
            jobs = list(self._executor.active_jobs)
        ended = {id(job): job for job in _with_output(jobs)}
        if not ended:
            return
        with self._executor.lock:
            self._executor.active_jobs[:] = [job for job in self._executor.active_jobs if id(job) not in ended]
        for job in ended.values():
            self._executor.next_seconds_between_status_checks = self._first_interval_s
            self._executor.report_job_success(job)


def _with_output(jobs: Sequence[SubmittedJob]) -> list[SubmittedJob]:
    """The jobs whose output exists; each folder is listed once, since that may ask another machine."""
    outputs = [[Path(path) for path in job.job.output] for job in jobs]
    folders = {path.parent for output in outputs for path in output}
    found = {path for folder in folders if folder.is_dir() for path in folder.iterdir()}
    return [job for job, output in zip(jobs, outputs, strict=True) if found.issuperset(output)]


@contextlib.contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Delay an interrupt until the block has ended. For the main thread, which receives interrupts."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def follow_results(executors: type[Executor]) -> None:
    """Have executors of this class and its subclasses poll and cancel by StatusChecks."""
    of_executors = functools.cache(StatusChecks)
    making = threading.Lock()
    cancel, submission = executors.cancel, executors.report_job_submission
    success, error = executors.report_job_success, executors.report_job_error

    def checks(executor: Executor) -> StatusChecks:
        with making:  # two threads submit and a third polls: a cache alone could give each its own
            return of_executors(executor)

    async def sleep(executor: Executor) -> None:
        await checks(executor).sleep()

    def run_jobs(executor: Executor, jobs: Iterable[object]) -> None:
        for job in jobs:
            with _interrupted_afterwards():  # a job that was submitted but not reported could not be cancelled
                executor.run_job_pre(job)
                executor.run_job(job)

    def report_job_submission(executor: Executor, job: SubmittedJob, *words: object, **more: object) -> None:
        checks(executor).submission_reported(job)
        submission(executor, job, *words, **more)

    def report_job_success(executor: Executor, job: SubmittedJob, *words: object, **more: object) -> None:
        checks(executor).end_reported(job)
        success(executor, job, *words, **more)

    def report_job_error(executor: Executor, job: SubmittedJob, *words: object, **more: object) -> None:
        checks(executor).end_reported(job)
        error(executor, job, *words, **more)

    def cancel_all(executor: Executor) -> None:
        with _interrupted_afterwards():  # a second interrupt must not leave jobs behind
            checks(executor).cancel(cancel)

    executors.sleep, executors.cancel, executors.run_jobs = sleep, cancel_all, run_jobs
    executors.report_job_submission = report_job_submission
    executors.report_job_success, executors.report_job_error = report_job_success, report_job_error
