# SPDX-License-Identifier: BSD-3-Clause
"""Follows the jobs that Snakemake submits by its log: whether they are rejected, cannot start, or are lost.

Snakemake reports a job that its scheduler rejects like any that fails, submits it again with more resources, and does
not report a job that waits. So its log is read while it runs, and the scheduler is asked why the submitted jobs
wait: 3 s after a submission, then at intervals that double up to five minutes.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.failures import log_tail
from channel_tools.system.errors import CommandError
from channel_tools.system.schedulers import remedy_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


_FIRST_QUESTION_S, _LONGEST_PAUSE_S = 3.0, 300.0
_RULE = r"^rule build:\n(?P<rule>(?:    .*\n)+)"
_FIELD = re.compile(r"^    (\w+): (.*)$", re.MULTILINE)
_RESOURCE = re.compile(r"(\w+)=(\d+)")
_OUTPUT = re.compile(r"results/(\S+)\.built")
_SUBMITTED = (
    r"^Job (?P<slurm>\d+) has been submitted with SLURM jobid (?P<slurm_job>\d+) "
    r"|^Submitted job (?P<pbs>\d+) with external jobid '(?P<pbs_job>[^']+)'"
)
_NOT_DONE = (
    r"(?P<before>(?:^qsub: .*\n)*)^\[.*\]\n"
    r"^Error in rule build:\n"
    r"    message: (?:SLURM-job '[\d_]+' failed, SLURM status is: '(?P<state>\w+)'"
    r"|SLURM sbatch failed\. The error message was '(?P<sbatch>(?s:.*?))'\.\n"
    r"|Error submitting jobscript \((?P<qsub>exit code \d+)\):)(?s:.*?)\n"
    r"    jobid: \d+\n"
    r"    output: results/(?P<stem>\S+)\.built\n"
    r"(?:    log: (?P<log>\S+))?"
)
"""Snakemake's lines on a job that failed, or that sbatch or qsub rejected; qsub's own message precedes them."""
_ENTRY = re.compile(f"{_RULE}|{_SUBMITTED}|{_NOT_DONE}", re.MULTILINE)
_LOST_JOB = re.compile(_NOT_DONE, re.MULTILINE)
_ERROR = re.compile(r"^(?:sbatch: error|qsub): ", re.MULTILINE)
_FAILED = "FAILED"
_ADVICE = {
    "fewer jobs": "; submit fewer jobs at once with --jobs N",
    "less": (
        "; request less under `resources` in variants/stacks.yaml, or name another partition or queue in a profile"
        " (--on FOLDER)"
    ),
    "": "",
}
"""Advice by what lets a job start (remedy_for)."""


class Submissions:
    """The jobs in Snakemake's log while it runs.

    ``stuck`` is Scheduler.stuck, ``clock`` returns seconds.
    """

    def __init__(
        self,
        log: Path,
        stuck: Callable[[Sequence[str]], Mapping[str, str]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._ask, self._clock = log, stuck, clock
        self._read_bytes = 0
        self._text = ""
        self._stems: dict[str, str] = {}
        """The stem of each job, by Snakemake's number."""
        self._jobs: dict[str, str] = {}
        """The scheduler's number of the last job for each stem."""
        self._asks: dict[str, str] = {}
        """The resources that the last job for each stem requests."""
        self._told: dict[tuple[str, str], str] = {}
        self._asked_for: set[str] = set()
        self._pause_s = self._due_s = 0.0

    def warnings(self, waiting: Collection[str]) -> Iterator[str]:
        """Lines about those of ``waiting`` (stems) that cannot start, each once as long as its reason is the same."""
        for stem, words in self._refused():
            yield from self._warning(stem, "was rejected", words)
        for stem, words in self._stuck(waiting):
            yield from self._warning(stem, f"{self._jobs[stem]} cannot start", words)

    def _warning(self, stem: str, what: str, words: str) -> Iterator[str]:
        if self._told.get((stem, what)) == words:
            return
        self._told[stem, what] = words
        yield f"{stem}: its job {what}: {words}; it requests {self._asks[stem]}{_ADVICE[remedy_for(words)]}"

    def _refused(self) -> Iterator[tuple[str, str]]:
        """Read the new part of the log; returns the jobs that were rejected, each with the scheduler's message."""
        with self._log.open("rb") as stream:
            stream.seek(self._read_bytes)
            new = stream.read()
        if not new:
            return
        self._read_bytes += len(new)
        self._text += new.decode(errors="replace")
        for entry in _ENTRY.finditer(self._text):
            if entry["rule"]:
                self._take_rule(dict(_FIELD.findall(entry["rule"])))
            elif (number := entry["slurm"] or entry["pbs"]) in self._stems:
                self._jobs[self._stems[number]] = entry["slurm_job"] or entry["pbs_job"]
            elif entry["stem"] in self._asks and (words := _refusal(entry)):
                yield entry["stem"], words
        last = self._text.rfind("\n[")  # the last entry may be incomplete, and qsub's message precedes it
        self._text = self._text[self._text.rfind("\n[", 0, max(0, last)) + 1 :]

    def _take_rule(self, fields: dict[str, str]) -> None:
        output = _OUTPUT.search(fields.get("output", ""))
        if output is None or not {"jobid", "resources"} <= fields.keys():
            return
        self._stems[fields["jobid"]] = output[1]
        resources = dict(_RESOURCE.findall(fields["resources"]))
        figures = {
            "cores": fields.get("threads", "1"),
            "memory_mib": resources.get("mem_mb"),
            "minutes": resources.get("runtime"),
        }
        self._asks[output[1]] = ", ".join(f"{name}: {figure}" for name, figure in figures.items() if figure)

    def _stuck(self, waiting: Collection[str]) -> Iterator[tuple[str, str]]:
        """Jobs that the scheduler cannot start, each with its reason; none if it is not asked or does not answer."""
        jobs = {job: stem for stem, job in self._jobs.items() if stem in waiting}
        now_s = self._clock()
        if not jobs.keys() <= self._asked_for:
            self._asked_for |= jobs.keys()
            self._pause_s, self._due_s = _FIRST_QUESTION_S, now_s + _FIRST_QUESTION_S
        if jobs and now_s >= self._due_s:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._due_s = now_s + self._pause_s
            with contextlib.suppress(CommandError):
                for job, words in self._ask([*jobs]).items():
                    yield jobs[job], words


def _refusal(entry: re.Match[str]) -> str:
    """Why the scheduler rejected a job, on one line; "" if it did not."""
    if entry["sbatch"] is None and entry["qsub"] is None:
        return ""
    words = entry["sbatch"] or entry["before"] or entry["qsub"]
    return "; ".join(_ERROR.sub("", words).splitlines())


@dataclass(kw_only=True, slots=True)
class LostJobs:
    """How the jobs of a package ended, by the scheduler's states, and the log of the last one that started."""

    ends: list[str] = field(default_factory=list)
    log: Path | None = None

    @property
    def is_explained(self) -> bool:
        """Whether the scheduler reports more about any of them than that it failed."""
        return any(end != _FAILED for end in self.ends)

    def said_of(self, stem: str) -> str:
        """A description of how they ended, with the end of the log and its path."""
        said = f"{stem}: its jobs left no result: {', '.join(self.ends)}"
        if self.log is None:
            return said
        tail = log_tail(self.log) if self.log.is_file() else ""
        return "\n".join([said, *([tail] if tail else []), f"log: {self.log}"])


def lost_jobs(log: Path) -> dict[str, LostJobs]:
    """By stem, the jobs that Slurm ended, or that Slurm or PBS rejected, from Snakemake's log."""
    lost: dict[str, LostJobs] = {}
    for found in _LOST_JOB.finditer(log.read_text(encoding="utf-8", errors="replace")):
        jobs = lost.setdefault(found["stem"], LostJobs())
        end = found["state"] or f"{'qsub' if found['qsub'] else 'sbatch'} rejected it ({_refusal(found)})"
        if found["state"] or end not in jobs.ends:
            jobs.ends.append(end)
        jobs.log = Path(found["log"]) if found["log"] else jobs.log
    return lost
