# SPDX-License-Identifier: BSD-3-Clause
"""Validates on the nodes of a cluster: runs the same command as a scheduler's job, with ranks on the job's hosts.

The job runs ``validate --on job`` on its first node. Its output, report and exit code are those of a validation on one
machine; the command that submitted the job passes them on.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.cluster import check_work_is_shared
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
from channel_tools.workflow.environment import built_requests
from channel_tools.workflow.launch import method_of, root_words
from channel_tools.workflow.validation import stack_to_validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.ranks.jobs import Listener
    from channel_tools.requests.validate import ValidateRequest
    from channel_tools.system.settings import Settings

_JOBS = "jobs"
_SCRIPT = "job.sh"
_INSTALL_MINUTES, _LEAST_MINUTES = 20, 30


def write_validation_job(settings: Settings, request: ValidateRequest, *, folder: Path) -> str:
    """The text of a job script, whose output file the scheduler chooses. Raises as run_validation_job does."""
    options, command = _options_and_command(settings, request, folder)
    return job_script(options, command, asked=request.job.submit_options)


def run_validation_job(
    settings: Settings, request: ValidateRequest, *, folder: Path, environ: Mapping[str, str], listener: Listener
) -> int:
    """Submit the validation and pass on its output; returns its exit code. Its files stay in ``output/jobs``.

    ``folder`` is the folder that the job's command runs in.

    Raises UsageError for a stack without validation, a time that is not valid or too short for the run, and a work
    folder that nodes cannot access; and the errors of run_job_script.
    """
    options, command = _options_and_command(settings, request, folder)
    parent = settings.output / _JOBS
    parent.mkdir(parents=True, exist_ok=True)
    kept = JobFolder(path=Path(tempfile.mkdtemp(prefix=f"{options.name}-", dir=parent)))
    script = kept.path / _SCRIPT
    write_text_atomically(script, recorded_job_script(options, kept, command))
    return run_job_script(
        scheduler_of(options.scheduler, environ),
        kept,
        script,
        options=request.job.submit_options,
        asks=options.asks,
        environ=environ,
        listener=listener,
    )


def _options_and_command(
    settings: Settings, request: ValidateRequest, folder: Path
) -> tuple[JobOptions, Sequence[str]]:
    stack, job = stack_to_validate(settings, request), request.job
    if job.scheduler is None:
        raise ValueError("the request has no scheduler")
    method = method_of(stack)
    check_work_is_shared(settings)
    options = JobOptions(
        scheduler=job.scheduler,
        name=f"validate-{stack.name}",
        ranks=request.rank_count,
        nodes=job.node_count,
        time=_time_for_the_run(settings, request),
        gpus=method.uses_gpus(stack.validation),
        folder=folder,
        variables={CACHE_VARIABLE: str(settings.cache)},
    )
    command = (
        *(sys.executable, "-P", "-m", "channel_tools", "validate", "--on", "job"),
        *root_words(settings),
        *("--output", str(settings.output), "--variant", stack.name),
        *("--nodes", str(job.node_count), "--ranks-per-node", str(job.ranks_on_each), *request.words()),
    )
    return options, command


def _time_for_the_run(settings: Settings, request: ValidateRequest) -> str:
    """The job's time limit. Raises UsageError for one that ends before the run's limit."""
    if request.job.time is not None:
        limit_s = seconds_of(request.job.time)
        if request.timeout_s is not None and request.timeout_s >= limit_s:
            message = f"--time {request.job.time} ends the job before its run's --timeout of {request.timeout_s:g} s"
            raise UsageError(
                message, hint="give a longer --time (the run starts after the installation), or leave it out"
            )
        return request.job.time
    timeout_s = DEFAULT_TIMEOUT_S if request.timeout_s is None else request.timeout_s
    variants = len(built_requests(settings, request.install.stack)) if request.all_variants else 1
    if variants * (timeout_s + _INSTALL_MINUTES * 60) > seconds_of(LONGEST_TIME):
        each = f" for all {counted(variants, 'variant')}" if request.all_variants else ""
        raise UsageError(
            f"--timeout {timeout_s:g}: a job may take at most {LONGEST_TIME}{each}", hint="give a shorter one"
        )
    minutes = variants * max(_LEAST_MINUTES, _INSTALL_MINUTES + math.ceil(timeout_s / 60))
    return f"{minutes // 60:02}:{minutes % 60:02}:00"
