# SPDX-License-Identifier: BSD-3-Clause
"""From a plan to packages in the local channel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from channel_tools.build.conda_build import find_conda_build
from channel_tools.build.model import BuildJob, BuildPlaces
from channel_tools.build.schedule import build_packages
from channel_tools.channel import channel_writer, ensure_channel, link_foundation, prefer_packages
from channel_tools.matrix import load_tree
from channel_tools.plan import render_folder
from channel_tools.workflow.auditing import admit_foundation, package_gate
from channel_tools.workflow.foundations import (
    FoundationOptions,
    choose_foundation,
    foundation_packages,
    make_registry_foundation,
    optional_packages_of,
)
from channel_tools.workflow.planning import plan_stacks, required_names
from channel_tools.workflow.platforms import current_platform
from channel_tools.workflow.sourcing import check_offline, provide_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from channel_tools.build.model import BuildResult, EngineName
    from channel_tools.channel import ChannelWriter
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.progress import Progress
    from channel_tools.settings import Settings
    from channel_tools.workflow.planning import PlanRequest
    from channel_tools.workflow.sourcing import SuppliedSources

_DOWNLOADS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """What a build run did: its plan, and one result per package that was not skipped."""

    plan: Plan
    results: tuple[BuildResult, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """Packages at once, the cores they share, the caller's environment, and how the registry foundation is made.

    ``engine`` conda-build is looked for on the PATH of ``environ``.
    """

    jobs: int
    cores: int
    environ: Mapping[str, str]
    engine: EngineName = "rattler-build"
    foundation: FoundationOptions = field(default_factory=FoundationOptions)
    offline: bool = False
    """Download nothing: what is missing is one error before anything is made."""


def build_stacks(
    settings: Settings,
    request: PlanRequest,
    *,
    options: BuildOptions,
    progress: Progress,
    on_plan: Callable[[Plan], None],
    on_result: Callable[[BuildResult], None],
) -> BuildOutcome:
    """Build what the request asks for into the local channel; the foundation and the channel are made where missing.

    Offline, all that is missing is one NetworkError before anything is written.
    Holds the channel's lock from planning to the last package, so that two runs never build the same thing. Raises what
    planning and the foundation raise, and the errors of builds that failed after all others are done.
    """
    loaded = load_tree(settings.tree)
    conda_build = find_conda_build(options.environ) if options.engine == "conda-build" else None
    foundation = choose_foundation(settings, kind=request.foundation, address=request.address)
    if options.offline:
        check_offline(settings, loaded, foundation, request, options=options.foundation, progress=progress)
    if foundation.kind == "registry":
        optional = optional_packages_of(required_names(loaded, foundation, request))
        made_with = replace(options.foundation, asked=options.foundation.asked | optional)
        make_registry_foundation(settings, jobs=options.jobs, options=made_with, dry_run=False, progress=progress)
    channel = ensure_channel(settings.channel, foundation, subdirs=(current_platform(),))
    with channel_writer(channel) as writer:
        _link(settings, writer, jobs=options.jobs, progress=progress)
        plan = plan_stacks(settings, loaded, foundation, request)
        on_plan(plan)
        sources = provide_sources(settings, plan, offline=options.offline, jobs=_DOWNLOADS_AT_ONCE, progress=progress)
        _show_skipped(writer, plan)
        results = build_packages(
            [_job(settings, package, sources) for package in plan.to_build],
            writer=writer,
            places=BuildPlaces(work=settings.work, logs=settings.logs, cache=settings.cache),
            platform=current_platform(),
            max_jobs=options.jobs,
            cores=options.cores,
            environ=options.environ,
            progress=progress,
            admit=package_gate(settings, channel, cores=options.cores, progress=progress),
            on_result=on_result,
            conda_build=conda_build,
        )
    return BuildOutcome(plan=plan, results=tuple(results))


def _link(settings: Settings, writer: ChannelWriter, *, jobs: int, progress: Progress) -> None:
    if writer.channel.foundation.kind == "registry":
        files = foundation_packages(settings)
        admit_foundation(settings, writer.channel, files, jobs=jobs, progress=progress)
        link_foundation(writer, files)


def _show_skipped(writer: ChannelWriter, plan: Plan) -> None:
    """Let solves see the planned builds: one that was made before may be hidden by a newer one."""
    names = [f"{package.subdir}/{package.file_name}" for package in plan.packages if package.status == "skip"]
    prefer_packages(writer, names)


def _job(settings: Settings, package: PlannedPackage, sources: SuppliedSources) -> BuildJob:
    folder = render_folder(package, settings.rendered, tree=settings.tree, places=sources)
    return BuildJob(
        file_name=package.file_name, subdir=package.subdir, recipe_folder=folder, waits_for=package.waits_for
    )
