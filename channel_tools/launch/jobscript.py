# SPDX-License-Identifier: BSD-3-Clause
"""Job scripts for Slurm and PBS.

A script asks the scheduler for room and runs the same command there, which finds the job's hosts by itself: so there is
one way of starting ranks, whoever starts it, and the job's output shows its commands and variables.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.launch.jobs import SCHEDULER_LOG
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from channel_tools.launch.jobs import JobFolder
    from channel_tools.system.schedulers import SchedulerName

_TIME = re.compile(r"[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOptions:
    """What to ask the scheduler for: ``time`` is HH:MM:SS, ``gpus`` whether each rank wants one.

    The command runs in ``folder`` with ``variables`` beside those that the scheduler gives it.
    """

    scheduler: SchedulerName
    name: str
    ranks: int
    nodes: int
    time: str
    gpus: bool
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)


def job_script(job: JobOptions, command: Sequence[str]) -> str:
    """The script that runs ``command`` in a job.

    Raises UsageError for ranks that the nodes cannot share, and for a time of another form.
    """
    return "\n".join([*_beginning(job, ()), "set -e", *_place(job), f"exec {shlex.join(command)}"]) + "\n"


def recorded_job_script(job: JobOptions, files: JobFolder, command: Sequence[str]) -> str:
    """As job_script, with what run_job_script reads in the folder ``files``; no job of it is begun a second time."""
    log = shlex.quote(str(files.path / SCHEDULER_LOG))
    if job.scheduler == "slurm":
        more = (f"#SBATCH --output={log}", "#SBATCH --no-requeue")
    else:
        more = (f"#PBS -o {log}", "#PBS -r n")
    return "\n".join([*_beginning(job, more), *_place(job), files.redirected(command)])


def _beginning(job: JobOptions, more: Sequence[str]) -> Iterator[str]:
    if _TIME.fullmatch(job.time) is None:
        raise UsageError(f"--time: found {job.time!r}, expected HH:MM:SS", hint="for example --time 02:00:00")
    each, left = divmod(job.ranks, job.nodes)
    if left or not each:
        message = f"{job.ranks} ranks on {job.nodes} nodes: each node takes the same number"
        raise UsageError(message, hint="give a --ranks that is a multiple of --nodes")
    yield "#!/bin/bash"
    yield from _slurm(job, each) if job.scheduler == "slurm" else _pbs(job, each)
    yield from more


def _place(job: JobOptions) -> Iterator[str]:
    yield f"cd {shlex.quote(str(job.folder))} || exit"
    yield from (f"export {name}={shlex.quote(value)}" for name, value in job.variables.items())


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
    yield "#PBS -l place=scatter"
    yield f"#PBS -l walltime={job.time}"
    yield "#PBS -j oe"
