# SPDX-License-Identifier: BSD-3-Clause
"""The progress of a plan's builds in one line: counts of done, running and waiting builds, and the least time left.

The time left is that of the critical path: the longest chain of builds that wait for each other, each taking as long as
it did before. With enough machines, the rest takes that long; with fewer, it takes longer.
"""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.build.model import BuildJob

_UNKNOWN_S = 180.0
"""Taken for a build that was never done before: some minutes."""
_MINUTE_S = 60
_HOUR_S = 3600


def time_left(unfinished: Sequence[BuildJob], running_s: Mapping[str, float]) -> float | None:
    """Seconds that the longest chain of ``unfinished`` builds takes; None if that is not known of one of them.

    ``running_s`` has the running time by stem; a build that is taking longer than before counts as about to end.
    """
    jobs = {job.file_name: job for job in unfinished}
    ends: dict[str, float] = {}
    for name in graphlib.TopologicalSorter({job.file_name: job.waits_for for job in unfinished}).static_order():
        if (job := jobs.get(name)) is None:  # finished
            continue
        if job.expected_s is None:
            return None
        begins = max((ends.get(other, 0.0) for other in job.waits_for), default=0.0)
        ends[name] = begins + max(0.0, job.expected_s - running_s.get(job.stem, 0.0))
    return max(ends.values(), default=0.0)


def chains_s(jobs: Sequence[BuildJob]) -> dict[str, float]:
    """By file name, the seconds of the longest chain of ``jobs`` that begins with this one; a guess where unknown."""
    waits_for = {job.file_name: job.waits_for for job in jobs}
    seconds = {job.file_name: _UNKNOWN_S if job.expected_s is None else job.expected_s for job in jobs}
    chains = dict(seconds)
    for name in reversed([*graphlib.TopologicalSorter(waits_for).static_order()]):
        for other in waits_for.get(name, ()):
            if other in seconds:
                chains[other] = max(chains[other], seconds[other] + chains[name])
    return chains


def state_in_words(*, done: int, failed: int, running: int, waiting: int, left_s: float | None) -> str:
    """``3 done, 2 running, 5 waiting; at least 12 min left``."""
    counts = [f"{done} done", *([f"{failed} failed or held back"] if failed else []), f"{running} running"]
    left = "time left unknown" if left_s is None else f"at least {duration_in_words(left_s)} left"
    return f"{', '.join(counts)}, {waiting} waiting; {left}"


def duration_in_words(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE_S)
    if seconds < _HOUR_S:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"
