# SPDX-License-Identifier: BSD-3-Clause
"""How long a plan's builds take on a cluster, simulated: at best, and as ``build --on slurm`` does them.

Nothing here is measured: what a job takes besides its build is given (Overheads; ``benchmarks.cluster toys`` measures
it), and when Slurm is asked for the jobs' state is known from Snakemake's plugin.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.build.forecast import chains_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.build.model import BuildJob

_FIRST_POLL_S, _LATER_S, _LONGEST_S = 10.0, 10.0, 180.0
"""The plugin's intervals: the first after a job's end, how much longer each next one is, and the longest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overheads:
    """The seconds of a job before its build begins, from its end to the job's, and of adding packages to the channel.

    Packages whose jobs are found ended together are added together.
    """

    start_s: float
    end_s: float
    add_s: float


class Plan:
    """The builds of a plan by number, each after those that it waits for."""

    def __init__(self, jobs: Sequence[BuildJob]) -> None:
        numbers = {job.file_name: number for number, job in enumerate(jobs)}
        self.seconds = [job.expected_s or 0.0 for job in jobs]
        self.chains = [*chains_s(jobs).values()]
        self.waits_for = [{numbers[name] for name in job.waits_for} for job in jobs]
        self.followers: list[list[int]] = [[] for _ in jobs]
        for number, others in enumerate(self.waits_for):
            for other in others:
                self.followers[other].append(number)


def ideal_s(jobs: Sequence[BuildJob], nodes: int) -> float:
    """How long the builds take on ``nodes`` that build one at a time each: no overhead, the longest chain first."""
    plan = Plan(jobs)
    chains, waiting = plan.chains, [set(others) for others in plan.waits_for]
    ready = [(-chains[number], number) for number, others in enumerate(waiting) if not others]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < nodes:
            _, number = heapq.heappop(ready)
            heapq.heappush(running, (now + plan.seconds[number], number))
        now, ended = heapq.heappop(running)
        for number in plan.followers[ended]:
            waiting[number].discard(ended)
            if not waiting[number]:
                heapq.heappush(ready, (-chains[number], number))
    return now


class _Run:
    """A run of ``build --on slurm``: the longest chain is submitted first, and Slurm keeps the order."""

    def __init__(self, plan: Plan, nodes: int, at_once: int, overheads: Overheads) -> None:
        self.plan, self.overheads = plan, overheads
        self.waiting = [set(others) for others in plan.waits_for]
        self.ready = [(-plan.chains[number], number) for number, others in enumerate(self.waiting) if not others]
        heapq.heapify(self.ready)
        self.queue: deque[int] = deque()
        self.free, self.slots = nodes, at_once
        self.now = self.added_by = 0.0
        self.running: list[tuple[float, int]] = []
        self.adding: list[tuple[float, int]] = []
        self.ended: list[int] = []
        self.left = len(self.waiting)

    def start(self) -> None:
        """Submit as many jobs as may be at once, and start those that find a node."""
        while self.ready and self.slots:
            self.slots -= 1
            self.queue.append(heapq.heappop(self.ready)[1])
        while self.queue and self.free:
            self.free -= 1
            number = self.queue.popleft()
            takes_s = self.overheads.start_s + self.plan.seconds[number] + self.overheads.end_s
            heapq.heappush(self.running, (self.now + takes_s, number))

    def end(self) -> None:
        """Free the nodes of jobs that have ended, and let those begin that waited for packages now in the channel."""
        while self.running and self.running[0][0] <= self.now:
            self.free += 1
            self.ended.append(heapq.heappop(self.running)[1])
        while self.adding and self.adding[0][0] <= self.now:
            self.left -= 1
            self.slots += 1
            added = heapq.heappop(self.adding)[1]
            for follower in self.plan.followers[added]:
                self.waiting[follower].discard(added)
                if not self.waiting[follower]:
                    heapq.heappush(self.ready, (-self.plan.chains[follower], follower))

    def poll(self) -> bool:
        """Ask Slurm; what has ended is added to the channel, together. Returns whether there was any."""
        if not self.ended:
            return False
        self.added_by = max(self.now, self.added_by) + self.overheads.add_s
        for number in self.ended:
            heapq.heappush(self.adding, (self.added_by, number))
        self.ended = []
        return True


def simulated_s(jobs: Sequence[BuildJob], nodes: int, *, at_once: int, overheads: Overheads) -> float:
    """How long the builds take with ``build --on slurm --jobs at_once`` on nodes that build one at a time each."""
    run = _Run(Plan(jobs), nodes, at_once, overheads)
    poll, interval = _FIRST_POLL_S, _FIRST_POLL_S
    while run.left:
        run.start()
        events = [poll, *(heap[0][0] for heap in (run.running, run.adding) if heap)]
        run.now = min(events)
        run.end()
        if run.now >= poll:
            interval = _FIRST_POLL_S if run.poll() else min(interval + _LATER_S, _LONGEST_S)
            poll = run.now + interval
    return run.now


def shares(jobs: Sequence[BuildJob], counts: Sequence[int], overheads: Overheads) -> Mapping[int, tuple[float, float]]:
    """By number of nodes, the simulated seconds and the ideal ones; a job waits for every four that may run."""
    return {
        count: (simulated_s(jobs, count, at_once=math.ceil(1.25 * count), overheads=overheads), ideal_s(jobs, count))
        for count in counts
    }
