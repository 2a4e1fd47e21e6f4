# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of the SwitchML validation: run under torchrun beside the switch, and what each of them writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.validate.launch import WORKERS, RankJob, read_results, run_job, torchrun
from channel_tools.validate.rank_values import RankCase, RankFacts, RankPath, RankSpeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.validate.processes import Deadline
    from channel_tools.validate.switch import RunningSwitch

WORKER = WORKERS / "switchml_allreduce.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCounts:
    """Growth of the plugin's counters: jobs and elements by dtype, fallbacks by reason; zeros left out."""

    jobs: dict[str, int]
    elements: dict[str, int]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedCase(RankCase):
    """With what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPath(RankPath):
    """With what the plugin counted for it."""

    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginLibrary:
    """The transport library that the plugin loaded."""

    path: str
    version: str
    transport: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DelegatedTotals:
    """Completed jobs of one dtype."""

    jobs: int
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStats:
    """The plugin's own report at the end of a rank."""

    active: bool
    version: str
    library: PluginLibrary | None
    delegated: dict[str, DelegatedTotals]
    fallbacks: dict[str, int]
    failed_jobs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankResult(RankFacts):
    """Everything that one rank wrote."""

    cases: tuple[CountedCase, ...]
    speeds: tuple[RankSpeed[CountedPath], ...]
    stats: PluginStats


def run_ranks(
    *,
    prefix: Path,
    variables: Mapping[str, str],
    ranks: int,
    document: Mapping[str, object],
    folder: Path,
    switch: RunningSwitch,
    deadline: Deadline,
) -> tuple[RankResult, ...]:
    """Run the worker script as ``ranks`` processes and return their results by rank. Raises as run_job."""
    job = RankJob(
        name="torchrun",
        launcher=torchrun(prefix, ranks),
        worker=WORKER,
        variables=variables,
        ranks=ranks,
        document=document,
        folder=folder,
    )
    run_job(job, deadline=deadline, companions=[switch])
    return read_results(job, RankResult, hint="install a torch-switchml of this channel's version")
