# SPDX-License-Identifier: BSD-3-Clause
"""Job scripts for Slurm and PBS.

A script asks the scheduler for room and runs the same launch there, which finds the job's hosts by itself: so there is
one way of starting ranks, whoever starts it, and the job's output shows its commands and variables.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Scheduler = Literal["slurm", "pbs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOptions:
    """What to ask the scheduler for: ``time`` is HH:MM:SS, ``gpus`` whether each rank wants one."""

    scheduler: Scheduler
    name: str
    ranks: int
    nodes: int
    time: str
    gpus: bool
    folder: Path


def job_script(job: JobOptions, command: Sequence[str]) -> str:
    """The script that runs ``command``, a launch, in a job. Raises UsageError for ranks that the nodes cannot share."""
    each, more = divmod(job.ranks, job.nodes)
    if more or not each:
        message = f"{job.ranks} ranks on {job.nodes} nodes: each node takes the same number"
        raise UsageError(message, hint="give a --ranks that is a multiple of --nodes")
    headers = _slurm(job, each) if job.scheduler == "slurm" else _pbs(job, each)
    lines = ["#!/bin/bash", *headers, "set -e", f"cd {shlex.quote(str(job.folder))}", f"exec {shlex.join(command)}"]
    return "\n".join(lines) + "\n"


def _slurm(job: JobOptions, each: int) -> Iterator[str]:
    yield f"#SBATCH --job-name={job.name}"
    yield f"#SBATCH --nodes={job.nodes}"
    yield f"#SBATCH --ntasks={job.ranks}"
    yield f"#SBATCH --ntasks-per-node={each}"
    if job.gpus:
        yield f"#SBATCH --gpus-per-node={each}"
    yield f"#SBATCH --time={job.time}"


def _pbs(job: JobOptions, each: int) -> Iterator[str]:
    gpus = f":ngpus={each}" if job.gpus else ""
    yield f"#PBS -N {job.name}"
    yield f"#PBS -l select={job.nodes}:ncpus={each}:mpiprocs={each}{gpus}"
    yield f"#PBS -l walltime={job.time}"
    yield "#PBS -j oe"
