# SPDX-License-Identifier: BSD-3-Clause
"""Validates on the nodes of a cluster: runs the same command as a scheduler's job, with ranks on the job's hosts.

The job runs ``validate --on job`` on its first node. Its output, report and exit code are those of a validation on one
machine; the command that submitted the job passes them on.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.environments import user_variables
from channel_tools.ranks.hosts import RankHosts, address_towards, hosts_of_the_job
from channel_tools.ranks.jobs import (
    LONGEST_TIME,
    JobFolder,
    JobOptions,
    job_script,
    recorded_job_script,
    run_job_script,
    seconds_of,
)
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.schedulers import scheduler_of
from channel_tools.system.settings import CACHE_VARIABLE
from channel_tools.validate.runner import DEFAULT_TIMEOUT_S
from channel_tools.workflow.cluster import check_work_is_shared
from channel_tools.workflow.environment import built_requests
from channel_tools.workflow.launch import method_of, root_words
from channel_tools.workflow.validation import stack_to_validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.ranks.jobs import Listener
    from channel_tools.system.schedulers import SchedulerName
    from channel_tools.system.settings import Settings

_JOBS = "jobs"
_SCRIPT = "job.sh"
_INSTALL_MINUTES, _LEAST_MINUTES = 20, 30
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_OF_SCHEDULERS = re.compile(r"(SLURM|PBS_).*|PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationJob:
    """What is requested from the scheduler, and what the job runs.

    ``words`` are the options of ``validate`` for the job's own command, except those for folders and ranks; ``folder``
    is the folder it runs in. ``timeout_s`` is the limit for the run after the installation, None for the default.
    ``time`` is the job's limit, HH:MM:SS; None means twenty minutes plus the run for each variant (all that the channel
    has with ``all_variants``, else one), at least half an hour. ``submit_options`` are options of sbatch or qsub.
    """

    scheduler: SchedulerName
    stack: str | None
    nodes: int
    ranks_per_node: int
    time: str | None
    words: tuple[str, ...]
    folder: Path
    timeout_s: float | None = None
    all_variants: bool = False
    submit_options: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of ranks on all nodes."""
        return self.nodes * self.ranks_per_node


def write_validation_job(settings: Settings, job: ValidationJob) -> str:
    """The text of a job script, whose output file the scheduler chooses. Raises as run_validation_job does."""
    options, command = _options_and_command(settings, job)
    return job_script(options, command, asked=job.submit_options)


def run_validation_job(
    settings: Settings, job: ValidationJob, *, environ: Mapping[str, str], listener: Listener
) -> int:
    """Submit the validation and pass on its output; returns its exit code. Its files stay in ``output/jobs``.

    Raises UsageError for a stack without validation, a time that is not valid or too short for the run, and a work
    folder that nodes cannot access; and the errors of run_job_script.
    """
    options, command = _options_and_command(settings, job)
    parent = settings.output / _JOBS
    parent.mkdir(parents=True, exist_ok=True)
    folder = JobFolder(path=Path(tempfile.mkdtemp(prefix=f"{options.name}-", dir=parent)))
    script = folder.path / _SCRIPT
    write_text_atomically(script, recorded_job_script(options, folder, command))
    return run_job_script(
        scheduler_of(job.scheduler, environ),
        folder,
        script,
        options=job.submit_options,
        asks=options.asks,
        environ=environ,
        listener=listener,
    )


def _options_and_command(settings: Settings, job: ValidationJob) -> tuple[JobOptions, Sequence[str]]:
    stack = stack_to_validate(settings, job.stack)
    method = method_of(stack)
    check_work_is_shared(settings)
    options = JobOptions(
        scheduler=job.scheduler,
        name=f"validate-{stack.name}",
        ranks=job.ranks,
        nodes=job.nodes,
        time=_time_for_the_run(settings, job),
        gpus=method.uses_gpus(stack.validation),
        folder=job.folder,
        variables={CACHE_VARIABLE: str(settings.cache)},
    )
    command = (
        *(sys.executable, "-P", "-m", "channel_tools", "validate", "--on", "job"),
        *root_words(settings),
        *("--output", str(settings.output), "--variant", stack.name),
        *("--nodes", str(job.nodes), "--ranks-per-node", str(job.ranks_per_node), *job.words),
    )
    return options, command


def _time_for_the_run(settings: Settings, job: ValidationJob) -> str:
    """The job's time limit. Raises UsageError for one that ends before the run's limit."""
    if job.time is not None:
        limit_s = seconds_of(job.time)
        if job.timeout_s is not None and job.timeout_s >= limit_s:
            message = f"--time {job.time} ends the job before its run's --timeout of {job.timeout_s:g} s"
            raise UsageError(
                message, hint="give a longer --time (the run starts after the installation), or leave it out"
            )
        return job.time
    timeout_s = DEFAULT_TIMEOUT_S if job.timeout_s is None else job.timeout_s
    variants = len(built_requests(settings, job.stack)) if job.all_variants else 1
    if variants * (timeout_s + _INSTALL_MINUTES * 60) > seconds_of(LONGEST_TIME):
        each = f" for all {counted(variants, 'variant')}" if job.all_variants else ""
        raise UsageError(
            f"--timeout {timeout_s:g}: a job may take at most {LONGEST_TIME}{each}", hint="give a shorter one"
        )
    minutes = variants * max(_LEAST_MINUTES, _INSTALL_MINUTES + math.ceil(timeout_s / 60))
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def local_scratch_of(text: str, environ: Mapping[str, str]) -> Path:
    """The folder that ``--local-scratch`` means in this job: a path, with ``$NAME`` and ``${NAME}`` expanded.

    Raises UsageError for a variable that is not set, and for a path that depends on the current folder.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environ.get(name):
            message = f"--local-scratch {text}: {name} is not set in this job"
            raise UsageError(message, hint="name the nodes' own disk as in the site's documentation, such as /local")
        return environ[name]

    folder = Path(_VARIABLE.sub(value, text))
    if not folder.is_absolute():
        raise UsageError(
            f"--local-scratch {text}: {folder} is not an absolute path", hint="give an absolute path, such as /local"
        )
    return folder


def hosts_of_this_job(
    settings: Settings, stack: str | None, *, nodes: int, ranks_per_node: int, environ: Mapping[str, str]
) -> RankHosts | None:
    """The hosts of the job that this runs in; None for a job of one node, for which the loopback network suffices.

    Raises UsageError outside a job and in one with another number of nodes, NetworkError for a node without a route.
    """
    stack_to_validate(settings, stack)
    hosts = hosts_of_the_job(nodes * ranks_per_node, environ=environ)
    if not hosts:
        message = "--on job: this is not running in a job of Slurm or PBS (no SLURM_JOB_ID, no PBS_NODEFILE)"
        raise UsageError(message, hint="submit one: --on slurm or --on pbs")
    if len(hosts) != nodes:
        names = ", ".join(host.name for host in hosts)
        message = f"the job has {counted(len(hosts), 'node')} ({names}), expected {nodes}"
        raise UsageError(
            message, hint=f"give --nodes {len(hosts)}, or request {counted(nodes, 'node')} from the scheduler"
        )
    if nodes == 1:
        return None
    return RankHosts(
        hosts=hosts,
        address=address_towards(hosts[1].address),
        is_slurm="SLURM_JOB_ID" in environ,
        variables={
            **user_variables(environ),
            **{name: value for name, value in environ.items() if _OF_SCHEDULERS.fullmatch(name)},
        },
    )
