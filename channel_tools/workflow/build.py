# SPDX-License-Identifier: BSD-3-Clause
"""From a plan to packages in the local channel, their sources complete and checked before the first build starts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces
from channel_tools.build.schedule import build_packages, channels_of, locked_builds, take_over_finished
from channel_tools.build.tools import find_tools
from channel_tools.build.usage import read_usage, with_resources
from channel_tools.channel import add_set, channel_writer, ensure_channel, prefer_packages
from channel_tools.channel.results import BuildRecord, record_build
from channel_tools.conda.addresses import local_path
from channel_tools.conda.package import NOARCH
from channel_tools.conda.platforms import current_platform
from channel_tools.foundation.model import table_summary
from channel_tools.plan import judge_again, render_folder
from channel_tools.plan.further_channels import require_here, write_views
from channel_tools.plan.inputs import variant_name
from channel_tools.plan.lock import write_lock
from channel_tools.requests.build import ClusterRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.sources.model import needed_sources
from channel_tools.sources.store import SourceStore
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, FoundationError, NetworkError
from channel_tools.system.files import sha256_of_file
from channel_tools.workflow.attest import Attester
from channel_tools.workflow.plan import (
    PYTHON_STACK,
    check_served,
    expand_request,
    open_index,
    plan_expansion,
    published_by_name,
)
from channel_tools.workflow.sources import missing_error, provide_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildResult, BuildTools
    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.channel import ChannelWriter
    from channel_tools.channel.model import Channel
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.matrix import RenderedPackage
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.requests.build import BuildRequest
    from channel_tools.system.fork_server import ForkServer
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import Expansion
    from channel_tools.workflow.sources import SuppliedSources


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """The result of a build run: its plan, and one result per package that was not skipped."""

    plan: Plan
    results: tuple[BuildResult, ...]


def check_build(settings: Settings, request: BuildRequest) -> tuple[BuildTools, tuple[str, ...]]:
    """The programs that the request's builds run, and the command of its workflow (see command_for).

    Makes nothing. Raises UsageError for parts that contradict each other, and an error for a missing program.
    """
    wanted = replace(request.tools, compiler_cache=request.tools.compiler_cache or settings.compiler_cache)
    tools = find_tools(wanted, settings.environ, cache=settings.cache)
    if request.cluster.is_here:
        return tools, ()
    from channel_tools.build.cluster import command_for  # noqa: PLC0415 - only builds on a cluster need it

    return tools, command_for(settings, request.cluster, jobs=request.foundation.jobs)


def build_stacks(
    settings: Settings,
    request: BuildRequest,
    *,
    workers: ForkServer,
    progress: Progress,
    on_plan: Callable[[Plan], None],
    on_result: Callable[[BuildResult], None],
) -> BuildOutcome:
    """Build the request into the local channel; the foundation and the channel are created if missing.

    ``workers`` is a worker_server: it may start long before this is called.

    If offline, everything that is missing is one NetworkError before anything is written. Holds the channel's lock from
    planning to the last package, so that two runs never build the same package; on a cluster, the lock of the builds'
    folder. Raises the errors of planning, the foundation and check_served and, after all other builds, those of builds
    that failed.
    """
    expansion = expand_request(settings, request.plan, note=progress.note)
    tools, command = check_build(settings, request)
    attester = None if request.signing is None else Attester(settings, request.signing)
    early = _check_offline(settings, expansion, request, progress=progress) if request.foundation.offline else None
    if expansion.foundation.kind == "registry":
        pythons = _built_pythons(
            settings, expansion, request, workers=workers, progress=progress, on_plan=on_plan, on_result=on_result
        )
        # only this foundation needs what downloads and unpacks wheels and Debian's packages
        from channel_tools.workflow.foundation import make_registry_foundation, with_needs  # noqa: PLC0415

        asked = replace(with_needs(settings, request.foundation, expansion), pythons=pythons)
        make_registry_foundation(settings, asked, progress=progress, attester=attester)
    channel = ensure_channel(settings.channel, expansion.foundation, subdirs=(current_platform(),))

    def told(result: BuildResult) -> None:
        record_result(channel, result)
        on_result(result)

    if not request.cluster.is_here:
        from channel_tools.build.cluster import await_earlier_builds  # noqa: PLC0415 - as in check_build

        await_earlier_builds(settings, request.cluster, progress.note)
    with contextlib.ExitStack() as held:
        with channel_writer(channel) as writer:
            held.enter_context(locked_builds(settings.work))
            _link(settings, writer, jobs=request.foundation.packages_at_once, progress=progress)
            plan = _plan_locked(settings, expansion, early)
            if request.foundation.offline:
                require_here(expansion.foundation, plan)
            _fill_lock(settings, expansion, plan, progress=progress)
            on_plan(plan)
            jobs = _jobs(settings, writer, plan, request, expansion, progress=progress)
            if attester is not None and jobs and not request.cluster.is_here:
                _ = attester.signer  # a key that cannot be read is an error before hours of building
            if request.cluster.is_here:
                results = _build_here(
                    settings,
                    writer,
                    jobs,
                    request,
                    tools,
                    workers=workers,
                    attester=attester,
                    progress=progress,
                    on_result=told,
                )
            else:
                from channel_tools.build.cluster import write_cluster_workflow  # noqa: PLC0415 - as in check_build

                builds = _remote_builds(settings, channel, jobs, request, tools)
                write_cluster_workflow(settings, request.cluster, builds, force=request.plan.force, note=progress.note)
                results = []
        if request.cluster.on is not None and jobs:  # each admission takes the lock itself
            from channel_tools.build.cluster import run_on_cluster  # noqa: PLC0415 - as in check_build

            results = run_on_cluster(
                command,
                request.cluster.workflow_folder(settings),
                builds,
                on=request.cluster.on,
                environ=settings.environ,
                progress=progress,
                on_result=told,
            )
    check_served(plan, request.plan)
    return BuildOutcome(plan=plan, results=tuple(results))


def record_result(channel: Channel, result: BuildResult) -> None:
    """Record in the channel when a successful build ended and, unless it was a continued build, what it used."""
    if result.package is not None:
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        seconds = None if result.usage is None else result.seconds
        record_build(channel.path, BuildRecord(file_name=result.package.name, finished=finished, seconds=seconds))


def _built_pythons(
    settings: Settings,
    expansion: Expansion,
    request: BuildRequest,
    *,
    workers: ForkServer,
    progress: Progress,
    on_plan: Callable[[Plan], None],
    on_result: Callable[[BuildResult], None],
) -> dict[str, Path]:
    """The further Pythons for the registry foundation, by minor version; built if missing."""
    own = table_summary().default.python
    wanted = {combination.python for combination in expansion.combinations} - {own}
    if not wanted:
        return {}
    plan = PlanRequest(stack=PYTHON_STACK, foundation=expansion.foundation.kind)
    # a workflow that is only written runs no build: then they are built here, like the foundation
    cluster = request.cluster if request.cluster.on is not None else ClusterRequest()
    outcome = build_stacks(
        settings,
        replace(request, plan=plan, cluster=cluster),
        workers=workers,
        progress=progress,
        on_plan=on_plan,
        on_result=on_result,
    )
    built = [package for package in outcome.plan.packages if package.name == "python"]
    found = {package.version.rpartition(".")[0]: settings.channel / str(package.key) for package in built}
    return {minor: path for minor, path in found.items() if minor in wanted}


def _jobs(
    settings: Settings,
    writer: ChannelWriter,
    plan: Plan,
    request: BuildRequest,
    expansion: Expansion,
    *,
    progress: Progress,
) -> list[BuildJob]:
    """The plan's jobs, with sources complete, recipes rendered and the channel's index showing what they solve from."""
    sources = provide_sources(settings, plan, offline=request.foundation.offline, progress=progress)
    # solves must see the planned builds: an earlier build may be hidden by a newer one
    prefer_packages(writer, [str(package.key) for package in plan.packages if package.status == "skip"])
    rendered = request.cluster.rendered(settings)
    index = open_index(settings, expansion.foundation)
    views = asyncio.run(write_views(index, expansion.foundation, plan, rendered))
    jobs = [
        replace(_job(settings, package, sources, rendered), views=views.get(package.key, ()))
        for package in plan.to_build
    ]
    stated = [expansion.resources.get(package.rendered.recipe_file.name) for package in plan.to_build]
    return with_resources(jobs, stated, read_usage(writer.channel))


def _fill_lock(settings: Settings, expansion: Expansion, plan: Plan, *, progress: Progress) -> None:
    """Write what the plan added to the foundation lock."""
    if plan.lock is not None and plan.locks:
        kind = expansion.foundation.kind
        path = write_lock(settings.tree.root, kind, current_platform(), plan.lock)
        new = counted(len(plan.locks), "new environment has", "new environments have")
        of = "the foundation" if kind == "conda-forge" else "further channels"
        progress.note(f"{path}: recorded what {new} of {of}; commit it")


def _build_here(
    settings: Settings,
    writer: ChannelWriter,
    jobs: Sequence[BuildJob],
    request: BuildRequest,
    tools: BuildTools,
    *,
    workers: ForkServer,
    attester: Attester | None,
    progress: Progress,
    on_result: Callable[[BuildResult], None],
) -> list[BuildResult]:

    @functools.cache
    def gate() -> Callable[[Path], PackageInfo | None]:
        """The audit and the signing key, which are slow to import: a key that cannot be read ends the first builds."""
        from channel_tools.workflow.audit import package_gate  # noqa: PLC0415

        audited = package_gate(settings, writer.channel, cores=request.cores, progress=progress)
        if attester is None:
            return audited
        _ = attester.signer
        return attester.attesting(audited)

    def admit(package: Path) -> PackageInfo | None:
        return gate()(package)

    places = BuildPlaces(work=settings.work, logs=settings.logs, cache=settings.cache)
    taken: list[BuildResult] = []
    if not request.plan.force:
        taken = take_over_finished(
            settings.nodes,
            jobs,
            writer=writer,
            logs=places.logs,
            admit=admit,
            progress=progress,
            on_result=on_result,
        )
    there = {result.job.file_name for result in taken}
    built = build_packages(
        [job for job in jobs if job.file_name not in there],
        BuildOptions(
            platform=current_platform(),
            max_jobs=request.foundation.packages_at_once,
            cores=request.cores,
            environ=settings.environ,
            tools=tools,
        ),
        writer=writer,
        places=places,
        workers=workers,
        progress=progress,
        admit=admit,
        meanwhile=gate,
        on_result=on_result,
    )
    return [*taken, *built]


def _remote_builds(
    settings: Settings, channel: Channel, jobs: Sequence[BuildJob], request: BuildRequest, tools: BuildTools
) -> RemoteBuilds:
    from channel_tools.build.forecast import chains_s  # noqa: PLC0415 - as in check_build
    from channel_tools.build.remote import RemoteBuilds  # noqa: PLC0415 - as in check_build

    return RemoteBuilds(
        python=sys.executable,
        tree=settings.tree.root,
        output=settings.output,
        places=BuildPlaces(work=settings.nodes, logs=settings.logs, cache=settings.cache),
        platform=current_platform(),
        channels=channels_of(channel),
        jobs=tuple(jobs),
        tools=tools,
        chains_s=chains_s(jobs),
        attest=None if request.signing is None else request.signing.as_texts(),
    )


def _link(settings: Settings, writer: ChannelWriter, *, jobs: int, progress: Progress) -> None:
    if writer.channel.foundation.kind == "registry":
        from channel_tools.workflow.audit import admit_foundation  # noqa: PLC0415 - as in build_stacks
        from channel_tools.workflow.foundation import foundation_packages  # noqa: PLC0415

        files = foundation_packages(settings)
        rows = admit_foundation(settings, writer.channel, [*files.made, *files.given], jobs=jobs, progress=progress)
        add_set(writer, files.given, files.made, trusted=rows)


def _job(settings: Settings, package: PlannedPackage, sources: SuppliedSources, rendered: Path) -> BuildJob:
    folder = render_folder(package, rendered, tree=settings.tree, places=sources)
    return BuildJob(
        file_name=package.file_name,
        subdir=package.subdir,
        recipe_folder=folder,
        waits_for=package.waits_for,
        work_name=variant_name(package.rendered),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _EarlyPlan:
    """A plan made before the channel was locked, and the foundation's index that it was made with."""

    plan: Plan
    index: str


def _plan_locked(settings: Settings, expansion: Expansion, early: _EarlyPlan | None) -> Plan:
    """The plan, made while no other run can change the channel: an early one is updated for the channel's content."""
    if early is None or early.index != _index_digest(settings, expansion):
        return plan_expansion(settings, expansion)
    return judge_again(early.plan, published_by_name(settings), force=expansion.request.force)


def _index_digest(settings: Settings, expansion: Expansion) -> str:
    """A hash of everything that planning reads from a foundation in a folder."""
    address = expansion.foundation.address
    folder = settings.foundation if address is None else local_path(address)
    names = [
        (subdir, name) for subdir in (current_platform(), NOARCH) for name in ("repodata.json", "run_exports.json")
    ]
    files = [folder.joinpath(*name) for name in names] if folder is not None else []
    return " ".join(sha256_of_file(path) for path in files if path.is_file())


def _check_offline(
    settings: Settings, expansion: Expansion, request: BuildRequest, *, progress: Progress
) -> _EarlyPlan | None:
    """Raise one NetworkError for everything that an offline build lacks, before anything is written; else the plan.

    If the foundation is up to date, that is the sources of the plan's builds. Without a foundation there is no plan, so
    every source of the request counts. Returns None if the foundation has to be made first, from earlier downloads.
    """
    packages: Sequence[RenderedPackage] = expansion.packages
    problem: ChannelToolsError | None = None
    early = None
    try:
        if _is_foundation_ready(settings, expansion, request, progress):
            early = _EarlyPlan(index=_index_digest(settings, expansion), plan=plan_expansion(settings, expansion))
            packages = [package.rendered for package in early.plan.to_build]
            require_here(expansion.foundation, early.plan)
        elif settings.channel.exists():  # what it has may need no source
            return None
    except (NetworkError, FoundationError) as err:
        problem = err
    store = SourceStore(folder=settings.sources)
    missing = [need for need in needed_sources(packages) if store.find(need) is None]
    lacking = ([problem] if problem else []) + ([missing_error(missing, store)] if missing else [])
    if lacking:
        hints = [error.hint for error in lacking if error.hint is not None]
        raise NetworkError("\n".join(error.message for error in lacking), hint="; and for sources: ".join(hints))
    return early


def _is_foundation_ready(settings: Settings, expansion: Expansion, request: BuildRequest, progress: Progress) -> bool:
    """Whether the foundation is up to date; False if it has to be made from earlier downloads.

    Raises NetworkError for a foundation that cannot be reached or made.
    """
    address = expansion.foundation.address
    if address is None:
        from channel_tools.workflow.foundation import (  # noqa: PLC0415 - as in build_stacks
            make_registry_foundation,
            with_needs,
        )

        dry = replace(with_needs(settings, request.foundation, expansion), jobs=1, dry_run=True)
        made = make_registry_foundation(settings, dry, progress=progress).made
        return not made and settings.foundation.exists()
    if local_path(address) is None:
        message = f"the foundation {address} needs the network"
        hint = "mirror it into a folder and give --foundation-channel file:///FOLDER"
        raise NetworkError(message, hint=hint)
    return True
