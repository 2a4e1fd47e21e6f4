# SPDX-License-Identifier: BSD-3-Clause
"""When Snakemake asks a scheduler for its jobs, with an executor and a clock of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from channel_tools.build.status_checks import Executor, StatusChecks, follow_results

INTERVAL_S = 60.0


@dataclass
class Job:
    output: list[str]


@dataclass
class Submitted:
    """As the interface's SubmittedJobInfo is: equal to another with the same values, and without a hash."""

    job: Job


class Plugin:
    """An executor as RemoteExecutor and the plugin for Slurm are: it forgets its jobs when Slurm does not answer."""

    next_seconds_between_status_checks = INTERVAL_S

    def __init__(self, jobs: list[Submitted]) -> None:
        self.active_jobs: list[Submitted] = []
        self.lock = threading.Lock()
        self.logger = logging.getLogger("plugin")
        self.wait = True
        self.ended: list[Submitted] = []
        self.cancelled: list[Submitted] = []
        self.said: list[str] = []
        self.on_end: Callable[[], object] = lambda: None
        self.on_submission: list[Callable[[], object]] = []
        self.refuses: Submitted | None = None
        for job in jobs:
            self.report_job_submission(job)

    async def sleep(self) -> None:
        raise AssertionError("the interface's own sleep")

    def cancel(self) -> None:
        self.cancel_jobs(list(self.active_jobs))
        self.shutdown()

    def cancel_jobs(self, jobs: list[Submitted]) -> None:
        if self.refuses and self.refuses in jobs:
            raise OSError("scancel: invalid job id")
        self.cancelled += jobs

    def shutdown(self) -> None:
        self.wait = False
        for submit in self.on_submission:
            submit()

    def run_jobs(self, jobs: list[Submitted]) -> None:
        raise AssertionError(f"the interface's own submission: {jobs}")

    def run_job_pre(self, job: Submitted) -> None:
        pass

    def run_job(self, job: Submitted) -> None:
        for happen in self.on_submission:
            happen()
        self.report_job_submission(job)

    def report_job_submission(self, job: Submitted) -> None:
        self.active_jobs.append(job)

    def report_job_success(self, job: Submitted) -> None:
        self.ended.append(job)
        self.on_end()

    def report_job_error(self, job: Submitted, msg: str) -> None:
        self.ended.append(job)
        self.said.append(msg)

    async def ask(self, answers: Iterator[list[Submitted] | None]) -> None:
        """Ask, sleep, and so on; an answer names the jobs that have ended."""
        for ended in answers:
            asked, self.active_jobs = self.active_jobs, []
            for job in asked if ended is not None else []:
                if not any(job is one for one in ended or []):
                    self.active_jobs.append(job)
                elif job is asked[0]:
                    self.report_job_success(job)
                else:
                    self.report_job_error(job, msg="lost")
            await self.sleep()


class Clock:
    """Moved by waiting alone; each event happens at its second."""

    def __init__(self, events: dict[float, Callable[[], object]] | None = None) -> None:
        self.now_s = 0.0
        self._events = events or {}

    def read(self) -> float:
        return self.now_s

    async def pause(self, seconds: float) -> None:
        self.now_s += seconds
        for at_s in [at_s for at_s in self._events if at_s <= self.now_s]:
            self._events.pop(at_s)()


def submitted(folder: Path, *names: str) -> list[Submitted]:
    return [Submitted(Job([str(folder / name)])) for name in names]


def question_times(plugin: Plugin, clock: Clock, count: int) -> list[float]:
    """When the executor asks after each of ``count`` waits."""
    checks = StatusChecks(cast("Executor", plugin), clock=clock.read, pause=clock.pause)
    times = []
    for _ in range(count):
        asyncio.run(checks.sleep())
        times.append(clock.now_s)
    return times


def test_the_plugins_own_intervals_hold_while_no_output_appears(tmp_path: Path) -> None:
    plugin = Plugin(submitted(tmp_path, "a"))
    assert question_times(plugin, Clock(), 2) == [INTERVAL_S, 2 * INTERVAL_S]


def test_a_job_has_ended_when_its_output_is_there(tmp_path: Path) -> None:
    first, second, third = jobs = submitted(tmp_path, "a", "b", "c")
    plugin = Plugin(jobs)
    clock = Clock({4.2: (tmp_path / "b").touch, 9.7: (tmp_path / "a").touch})
    times: list[float] = []
    plugin.on_end = lambda: times.append(clock.now_s)
    question_times(plugin, clock, 1)
    assert plugin.ended == [second, first]
    assert times == [4.5, 10.0]
    assert plugin.active_jobs == [third]  # which the scheduler is asked for


def test_the_plugin_asks_soon_again_once_a_job_has_ended(tmp_path: Path) -> None:
    plugin = Plugin(submitted(tmp_path, "a", "b"))
    grown = {61.0: lambda: setattr(plugin, "next_seconds_between_status_checks", 180.0)}
    clock = Clock({**grown, 100.0: (tmp_path / "a").touch})
    assert question_times(plugin, clock, 2) == [INTERVAL_S, 2 * INTERVAL_S]


def test_jobs_that_are_submitted_meanwhile_are_looked_for(tmp_path: Path) -> None:
    plugin = Plugin([])
    (tmp_path / "a").touch()
    (job,) = submitted(tmp_path, "a")
    clock = Clock({2.5: lambda: plugin.active_jobs.append(job)})
    question_times(plugin, clock, 1)
    assert plugin.ended == [job]


def test_shutdown_is_not_slept_through(tmp_path: Path) -> None:
    plugin = Plugin(submitted(tmp_path, "a"))
    clock = Clock({7.2: plugin.cancel})
    assert question_times(plugin, clock, 1) == [7.5]


@pytest.fixture
def prompt() -> type[Plugin]:
    class Prompt(Plugin):
        next_seconds_between_status_checks = 0.0

    follow_results(cast("type[Executor]", Prompt))
    return Prompt


def test_jobs_forgotten_while_slurm_did_not_answer_are_asked_for_again(prompt: type[Plugin], tmp_path: Path) -> None:
    jobs = submitted(tmp_path, "a", "b", "c")
    plugin = prompt(list(jobs))
    asyncio.run(plugin.ask(iter([[], None, [jobs[0]], None, None, jobs[1:]])))
    assert plugin.ended == jobs
    assert plugin.said == ["lost"]
    assert plugin.active_jobs == []


def test_what_is_asked_for_is_cancelled_too(prompt: type[Plugin], tmp_path: Path) -> None:
    jobs = submitted(tmp_path, "a", "b")
    plugin = prompt(list(jobs))

    def answers() -> Iterator[list[Submitted] | None]:
        yield [jobs[0]]
        yield []
        plugin.active_jobs = []  # as while it asks
        plugin.cancel()

    asyncio.run(plugin.ask(answers()))
    assert plugin.cancelled == [jobs[1]]


def test_what_is_asked_for_the_first_time_is_cancelled_too(prompt: type[Plugin], tmp_path: Path) -> None:
    jobs = submitted(tmp_path, "a", "b")
    plugin = prompt(list(jobs))
    plugin.active_jobs = []
    plugin.cancel()
    assert plugin.cancelled == jobs


def test_a_job_that_is_being_submitted_is_cancelled_when_it_is_known(prompt: type[Plugin], tmp_path: Path) -> None:
    early, late = submitted(tmp_path, "a", "b")
    plugin = prompt([early])
    plugin.on_submission = [lambda: plugin.report_job_submission(late)]
    plugin.cancel()
    assert plugin.cancelled == [early, late]


def test_an_interrupt_waits_for_the_submission_that_it_falls_into(prompt: type[Plugin], tmp_path: Path) -> None:
    jobs = submitted(tmp_path, "a", "b")
    plugin = prompt([])
    plugin.on_submission = [lambda: signal.raise_signal(signal.SIGINT)]
    with pytest.raises(KeyboardInterrupt):
        plugin.run_jobs(jobs)
    assert plugin.active_jobs == [jobs[0]]  # known, and so cancelled; the next one is not submitted


def test_another_interrupt_does_not_stop_the_cancelling(prompt: type[Plugin], tmp_path: Path) -> None:
    early, late = submitted(tmp_path, "a", "b")
    plugin = prompt([early])
    plugin.on_submission = [lambda: signal.raise_signal(signal.SIGINT), lambda: plugin.report_job_submission(late)]
    with pytest.raises(KeyboardInterrupt):
        plugin.cancel()
    assert plugin.cancelled == [early, late]


def test_a_job_that_cannot_be_cancelled_keeps_no_other_from_it(prompt: type[Plugin], tmp_path: Path) -> None:
    early, late = submitted(tmp_path, "a", "b")
    plugin = prompt([early])
    plugin.refuses = early
    plugin.on_submission = [lambda: plugin.report_job_submission(late)]
    with pytest.raises(OSError, match="invalid job id"):
        plugin.cancel()
    assert (plugin.cancelled, plugin.wait) == ([late], False)


def test_threads_that_submit_the_first_jobs_at_once_know_of_the_same_jobs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs = submitted(tmp_path, "a", "b")
    both = threading.Barrier(2)

    class Slow(StatusChecks):
        def __init__(self, executor: Executor) -> None:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # the other thread comes here, too, unless it is kept out
            super().__init__(executor)

    class Prompt(Plugin):
        pass

    monkeypatch.setattr("channel_tools.build.status_checks.StatusChecks", Slow)
    follow_results(cast("type[Executor]", Prompt))
    plugin = Prompt([])
    threads = [threading.Thread(target=plugin.report_job_submission, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plugin.active_jobs = []
    plugin.cancel()
    assert sorted(map(id, plugin.cancelled)) == sorted(map(id, jobs))
