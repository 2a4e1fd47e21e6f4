# SPDX-License-Identifier: BSD-3-Clause
"""The ranks of the SwitchML validation: run under torchrun beside the switch, and what each of them writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.validate.launch import WORKERS, RankJob, read_results, run_job, torchrun

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
class RankCase:
    """One case as one rank saw it."""

    name: str
    seconds: float
    max_error: float
    mismatches: int
    counts: RankCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPath:
    """One way (default group, plain gloo group) of a measured size on one rank; seconds per measured call."""

    seconds: tuple[float, ...]
    counts: RankCounts
    mismatches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPaths:
    """Both ways."""

    default: RankPath
    plain: RankPath


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSpeed:
    """One measured size on one rank."""

    dtype: str
    numel: int
    paths: RankPaths


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
class RankResult:
    """Everything that one rank wrote."""

    rank: int
    world_size: int
    python: str
    torch: str
    cases: tuple[RankCase, ...]
    speeds: tuple[RankSpeed, ...]
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
