# SPDX-License-Identifier: BSD-3-Clause
"""``validate``: an installed stack, or its variants in turn, here or as a scheduler's job.

A job runs the same command, ``validate --on job``, on its first node, with ranks on the job's hosts. Its output, report
and exit code are those of a validation on one machine; the command that submitted the job passes them on.
"""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.cluster import check_work_is_shared
from channel_tools.channel import open_channel
from channel_tools.conda.platforms import current_platform
from channel_tools.doctor.model import ROOT
from channel_tools.environments import installed_builds
from channel_tools.matrix import find_stack, load_tree
from channel_tools.ranks.hosts import hosts_of_this_job
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
from channel_tools.system.errors import ChannelToolsError, SolveError, UsageError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.schedulers import scheduler_of
from channel_tools.system.settings import CACHE_VARIABLE
from channel_tools.validate import (
    ValidationSetup,
    check_request,
    kept_file,
    raise_for_failures,
    validate_stack,
    write_page,
    write_report,
)
from channel_tools.validate.local_scratch import local_scratch_of
from channel_tools.validate.nccl.nccl_tests import describe_nccl_tests, judge_nccl_tests, read_nccl_tests
from channel_tools.validate.report import VariantResult
from channel_tools.validate.runner import DEFAULT_TIMEOUT_S
from channel_tools.workflow.environment import built_requests, install_channels, naming_cuda, variants_of
from channel_tools.workflow.launch import installed_stack, method_of, method_options, network_options, root_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from channel_tools.matrix.model import Stack
    from channel_tools.ranks.hosts import RankHosts
    from channel_tools.ranks.jobs import Listener
    from channel_tools.requests.validate import ValidateRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.validate import ValidationReport
    from channel_tools.validate.model import MethodResult
    from channel_tools.validate.nccl.nccl_tests import NcclTests


_JOBS = "jobs"
_SCRIPT = "job.sh"
_INSTALL_MINUTES, _LEAST_MINUTES = 20, 30


def stack_to_validate(settings: Settings, request: ValidateRequest) -> Stack:
    """The request's stack: that given, else that of the environment at its prefix, else the default one.

    So the default stack is not installed over another one. Raises UsageError for a stack without a ``validate`` block,
    and for an environment of several stacks.
    """
    loaded, name, prefix = load_tree(settings.tree, settings.environ), request.install.stack, request.prefix
    stack = None
    if name is None and prefix is not None and (prefix / "conda-meta").is_dir():
        stack = installed_stack(loaded, installed_builds(prefix), prefix)
    stack = stack or find_stack(loaded, name)
    if not stack.validation:
        message = f"the stack {stack.name} has no validation: nothing in it carries an allreduce"
        raise UsageError(message, hint="its packages are tested by their recipes while they are built")
    return stack


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlace:
    """The job that ranks run in: its hosts, None for one node, and the folder on each node's own disk, if there is one.

    The default is this machine.
    """

    hosts: RankHosts | None = None
    local_scratch: Path | None = None


def place_of(request: ValidateRequest, environ: Mapping[str, str]) -> JobPlace:
    """Where the ranks of the request run. Raises as hosts_of_this_job and local_scratch_of do."""
    job = request.job
    if not job.is_asked:
        return JobPlace()
    scratch = None if job.local_scratch is None else local_scratch_of(job.local_scratch, environ)
    return JobPlace(hosts=hosts_of_this_job(job.node_count, job.ranks_on_each, environ), local_scratch=scratch)


def validate_installed(
    settings: Settings,
    request: ValidateRequest,
    *,
    progress: Progress,
    environ: Mapping[str, str],
    job_place: JobPlace = JobPlace(),
) -> tuple[ValidationReport, Path]:
    """Validate a stack and write its report to ``output/report/<stack>.json`` and as a page; returns report and path.

    The report of a variant other than the default one has the Python and PyTorch in its name; one of an environment as
    it was is in ``output/report/as-installed``, which the channel's page does not show. The report of an earlier
    run is removed when this run starts, so an interrupted run leaves none.

    With ``history``, the report is kept in ``output/report/history/<stack>``, too. It may have failed checks. Raises as
    validate_stack does.
    """
    stack = stack_to_validate(settings, request)
    tests = _nccl_tests_of(request, stack)
    variants = variants_of(settings, stack.name)
    choice = variants.chosen_in(request.prefix, request.install)
    # the channel's page shows the reports of what its packages were installed as, not of whatever somebody has
    reports = settings.reports / "as-installed" if request.as_installed else settings.reports
    path = reports / f"{variants.report_name(choice)}.json"
    # a folder that no report can be written to would lose the results after the run
    reports.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=reports):
        pass
    specs = stack.install if request.as_installed else variants.specs_for(choice)
    wanted = _run_of(settings, request, stack, specs, job_place)
    check_request(wanted)
    # an earlier report would be mistaken for the result of an interrupted run
    for written in (path, path.with_suffix(".html")):
        written.unlink(missing_ok=True)
    try:
        report = validate_stack(wanted, environ=environ, progress=progress)
    except SolveError as err:
        raise naming_cuda(err, settings, request.install) from err
    if tests is not None:
        report = replace(report, result=_with_nccl_tests(report.result, tests))
    # a channel that is named, or that installed packages come from, is not the local one
    if not (request.install.channels or request.as_installed) and settings.channel.exists():
        report = replace(report, runs_on=open_channel(settings.channel).foundation.runs_on([current_platform()]))
    if request.history:
        write_report(report, kept_file(reports / "history" / variants.report_name(choice), report))
    write_report(report, path)
    write_page(report, path.with_suffix(".html"))
    return report, path


def _nccl_tests_of(request: ValidateRequest, stack: Stack) -> NcclTests | None:
    """The run of nccl-tests that the request names. Raises UsageError for a stack without NCCL, and as its reader."""
    if request.nccl_tests is None:
        return None
    if stack.validation["method"] != "nccl":
        message = f"--nccl-tests: the stack {stack.name} has no NCCL plugin"
        raise UsageError(message, hint="leave it out, or give --variant nccl-ofi")
    return read_nccl_tests(request.nccl_tests)


def _with_nccl_tests(result: MethodResult, tests: NcclTests) -> MethodResult:
    return replace(
        result,
        checks=(*result.checks, *judge_nccl_tests(tests)),
        nccl_tests=tests.rows,
        details={**result.details, **describe_nccl_tests(tests)},
    )


def _run_of(
    settings: Settings, request: ValidateRequest, stack: Stack, specs: tuple[str, ...], job_place: JobPlace
) -> ValidationSetup:
    """The run that the request comes to, of the variant that ``specs`` install."""
    return ValidationSetup(
        stack=stack.name,
        method=str(stack.validation["method"]),
        options=method_options(stack),
        specs=specs,
        channels=() if request.as_installed else install_channels(settings, request.install),
        ranks=request.rank_count,
        subdir=current_platform(),
        package_cache=settings.package_cache,
        work=settings.work,
        forbidden=(*([settings.tree.root] if settings.tree.has_recipes else []), settings.output, settings.work),
        prefix=request.prefix,
        as_installed=request.as_installed,
        keep=request.keep,
        timeout_s=DEFAULT_TIMEOUT_S if request.timeout_s is None else request.timeout_s,
        hosts=job_place.hosts,
        local_scratch=job_place.local_scratch,
    )


def validate_variants(
    settings: Settings, request: ValidateRequest, *, environ: Mapping[str, str], progress: Progress
) -> list[VariantResult]:
    """Validate the request's stack, or each of its variants in turn: a failure does not stop the others.

    Raises UsageError for a stack without validation and a job that is not as requested, and as built_requests.
    """
    stack = stack_to_validate(settings, request)
    job_place = place_of(request, environ)
    if request.all_variants:
        installs = built_requests(settings, stack.name)
    else:
        installs = [replace(request.install, stack=stack.name)]
    results = []
    for install in installs:
        report = path = error = None
        try:
            wanted = replace(request, install=install, all_variants=False)
            report, path = validate_installed(settings, wanted, progress=progress, environ=environ, job_place=job_place)
            raise_for_failures(report, report_file=path)
        except ChannelToolsError as err:
            error = err
        results.append(
            VariantResult(python=install.python, pytorch=install.pytorch, report=report, path=path, error=error)
        )
    return results


def write_validation_job(settings: Settings, request: ValidateRequest, *, folder: Path, root: Path = ROOT) -> str:
    """The text of a job script, whose output file the scheduler chooses; ``root`` has /sys.

    Raises as run_validation_job does.
    """
    options, command = _options_and_command(settings, request, folder)
    return job_script(options, command, submit_options=_submit_options(request, options, root))


def _submit_options(request: ValidateRequest, job: JobOptions, root: Path = ROOT) -> tuple[str, ...]:
    """Those of the request, after what the profile of an environment that is there wants of the network."""
    if request.prefix is None:
        return request.job.submit_options
    return (*network_options(request.prefix, job.scheduler, job.nodes, root=root), *request.job.submit_options)


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
    job_folder = JobFolder(path=Path(tempfile.mkdtemp(prefix=f"{options.name}-", dir=parent)))
    script = job_folder.path / _SCRIPT
    write_text_atomically(script, recorded_job_script(options, job_folder, command))
    return run_job_script(
        scheduler_of(options.scheduler, environ),
        job_folder,
        script,
        options=_submit_options(request, options),
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
    _nccl_tests_of(request, stack)  # before the job waits
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
