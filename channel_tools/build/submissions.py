# SPDX-License-Identifier: BSD-3-Clause
"""Follows the jobs that Snakemake submits: whether they are rejected, cannot start, or are lost.

Snakemake submits a job that its scheduler rejects again with more resources, like any that fails, and says nothing of
one that waits. So what it reports to our logger plugin is read while it runs, and the scheduler is asked why submitted
jobs wait: 3 s after a submission, then at intervals that double up to five minutes.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from channel_tools.build.failures import log_tail
from channel_tools.system.document import decode_json
from channel_tools.system.errors import CommandError
from channel_tools.system.schedulers import remedy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from channel_tools.system.schedulers import QueuedJob

BUILD: Final = "build"
"""The Snakefile's rule for a job of the scheduler."""
_FIRST_QUESTION_S, _LONGEST_PAUSE_S = 3.0, 300.0
_FORGOTTEN_S = 600.0
"""For how long a job may be unknown: Snakemake needs up to five minutes to see its end, and to find its result."""
_COMMON_ADVICE = "For further error details see the cluster/cloud log and the log files of the involved rule(s)."
"""The interface of Snakemake's plugins appends this to what a plugin reports about a failed job."""
_FORGOTTEN = "is no longer known to the scheduler, and Snakemake still waits for it: Snakemake is started again"
_ADVICE = {
    "fewer jobs": "; submit fewer jobs at once with --jobs N",
    "less": (
        "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
        " (--on FOLDER)"
    ),
    "": "",
}
"""Advice by what lets a job start (remedy_for)."""


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the logger plugin: a job that starts or is submitted (with a ``stem``), or one that failed."""

    rule: str
    number: int
    stem: str | None = None
    threads: int | None = None
    mem_mb: int | str | None = None
    runtime: int | str | None = None
    message: str | None = None
    submitted: bool = False
    logs: tuple[str, ...] = ()

    def reason(self) -> str:
        """Why it failed, on one line: the message up to the details, which are indented."""
        lines = str(self.message).replace(_COMMON_ADVICE, "").splitlines()
        details = next((number for number, line in enumerate(lines) if line.startswith(" ")), None)
        return "; ".join(line.strip() for line in lines[:details] if line.strip())

    def requests(self) -> str:
        """The requested resources, by their names in variants/stacks.yaml."""
        figures = {"cores": self.threads, "memory_mib": self.mem_mb, "minutes": self.runtime}
        return ", ".join(f"{name}: {figure}" for name, figure in figures.items() if figure)


@dataclass(kw_only=True, slots=True)
class LostJobs:
    """Why the jobs of a package failed, in the words of Snakemake's plugin, and the log of the last that started."""

    reasons: list[str] = field(default_factory=list)
    log: Path | None = None

    def description_of(self, stem: str) -> str:
        """A description of how they ended, with the end of the log and its path."""
        lines = [f"{stem}: its jobs left no result", *(f"    {reason}" for reason in self.reasons if reason)]
        if self.log is not None:
            tail = log_tail(self.log) if self.log.is_file() else ""
            lines += [*([tail] if tail else []), f"log: {self.log}"]
        return "\n".join(lines)


class Submissions:
    """The jobs in the logger plugin's file while Snakemake runs.

    ``queued`` returns those of the packages with these stems that wait or run; ``clock`` returns seconds.
    """

    def __init__(
        self,
        events: Path,
        queued: Callable[[Collection[str]], Mapping[str, QueuedJob]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events, self._queued, self._clock = events, queued, clock
        self._read_bytes = 0
        self._stems: dict[int, str] = {}
        """The stem of each job, by Snakemake's number."""
        self._requests: dict[str, str] = {}
        """The resources that the last job for each stem requests."""
        self._told: dict[tuple[str, str], str] = {}
        self._unknown_since_s: dict[str, float | None] = {}
        """For each stem whose job the scheduler has known, since when it does not; None while it does."""
        self._pause_s = self._due_s = 0.0
        self.lost: dict[str, LostJobs] = {}
        """By stem, the jobs that left no result or that were rejected."""
        self.has_begun = False
        """Whether Snakemake has started or submitted any job."""
        self.has_forgotten = False
        """Whether Snakemake waits for a job that the scheduler has forgotten, which it would do for ever."""

    def warnings(self, unfinished: Collection[str]) -> Iterator[str]:
        """Lines about jobs of ``unfinished`` (stems) that cannot start or end, once for each reason."""
        for stem, requests, reason in self.read():
            yield from self._warning(stem, "was rejected", reason, requests)
        for stem, job in self._ask(unfinished).items():
            if job.stuck:
                yield from self._warning(stem, f"{job.job} cannot start", job.stuck, self._requests[stem])
        yield from self._forgotten(unfinished)

    def _forgotten(self, unfinished: Collection[str]) -> Iterator[str]:
        for stem, since_s in self._unknown_since_s.items():
            if stem in unfinished and since_s is not None and self._clock() - since_s >= _FORGOTTEN_S:
                self._unknown_since_s[stem] = math.inf  # told
                self.has_forgotten = True
                yield f"{stem}: its job {_FORGOTTEN}"

    def _warning(self, stem: str, outcome: str, words: str, requests: str) -> Iterator[str]:
        if self._told.get((stem, outcome)) == words:
            return
        self._told[stem, outcome] = words
        yield f"{stem}: its job {outcome}: {words}; it requests {requests}{_ADVICE[remedy_for(words)]}"

    def read(self) -> list[tuple[str, str, str]]:
        """Read what was added to the file; returns the jobs that were rejected: stem, requested resources, reason."""
        rejected: list[tuple[str, str, str]] = []
        for event in self._new():
            self.has_begun = True
            if event.rule != BUILD:
                continue
            if event.stem is not None:
                self._stems[event.number], self._requests[event.stem] = event.stem, event.requests()
                self._unknown_since_s.pop(event.stem, None)
                self._pause_s, self._due_s = _FIRST_QUESTION_S, self._clock() + _FIRST_QUESTION_S
            elif (stem := self._stems.get(event.number)) is not None:
                self._lose(stem, event)
                if not event.submitted:
                    rejected.append((stem, self._requests[stem], event.reason()))
        return rejected

    def _new(self) -> Iterator[_Event]:
        """The lines that were completed since the last call."""
        try:
            with self._events.open("rb") as stream:
                stream.seek(self._read_bytes)
                new = stream.read()
        except FileNotFoundError:  # Snakemake has not loaded the plugin yet
            return
        new = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(new)
        for line in new.splitlines():
            yield decode_json(line, _Event)

    def _lose(self, stem: str, event: _Event) -> None:
        jobs = self.lost.setdefault(stem, LostJobs())
        reason = event.reason()
        if event.submitted or reason not in jobs.reasons:
            jobs.reasons.append(reason)
        jobs.log = Path(event.logs[-1]) if event.logs else jobs.log

    def _ask(self, unfinished: Collection[str]) -> Mapping[str, QueuedJob]:
        """The jobs that wait or run, by stem; none if it is not time to ask, or the scheduler does not answer."""
        stems, now_s = [stem for stem in self._requests if stem in unfinished], self._clock()
        if not stems or now_s < self._due_s:
            return {}
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._due_s = now_s + self._pause_s
        try:
            queued = self._queued(stems)
        except CommandError:
            return {}
        for stem in stems:
            if stem in queued:
                self._unknown_since_s[stem] = None
            elif stem in self._unknown_since_s and self._unknown_since_s[stem] is None:
                self._unknown_since_s[stem] = now_s
        return queued
