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

from channel_tools.build.compiler_cache import find_compiler_cache
from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces
from channel_tools.build.schedule import build_packages, channels_of, locked_builds, take_over_finished
from channel_tools.build.usage import read_usage, record_result, with_resources
from channel_tools.channel import channel_writer, ensure_channel, indexed_files, prefer_packages
from channel_tools.channel.results import StackRecord, record_stack
from channel_tools.channel.store import record_further
from channel_tools.conda.addresses import local_path
from channel_tools.conda.platforms import current_platform
from channel_tools.plan import judge_again, render_folder
from channel_tools.plan.foundation import index_digest
from channel_tools.plan.further_channels import require_here, write_views
from channel_tools.plan.inputs import variant_name
from channel_tools.plan.lock import write_lock
from channel_tools.requests.build import ClusterRequest
from channel_tools.requests.plan import PlanRequest
from channel_tools.sources.model import needed_sources
from channel_tools.sources.store import SourceStore
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelToolsError, FoundationError, NetworkError
from channel_tools.workflow.attest import Attester
from channel_tools.workflow.bases import recorded_pytorch
from channel_tools.workflow.plan import (
    PYTHON_STACK,
    check_served,
    expand_request,
    open_index,
    plan_expansion,
    published_by_name,
    pythons_to_build,
    stack_options,
)
from channel_tools.workflow.sources import missing_error, provide_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from channel_tools.build.compiler_cache import CompilerCache
    from channel_tools.build.model import BuildResult
    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.channel import ChannelWriter
    from channel_tools.channel.model import Channel
    from channel_tools.conda.archive import PackageInfo
    from channel_tools.matrix import RenderedPackage
    from channel_tools.plan import Plan, PlannedPackage
    from channel_tools.requests.build import BuildRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.plan import Expansion
    from channel_tools.workflow.sources import SuppliedSources


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """The result of a build run: its plan, and one result per package that was not skipped."""

    plan: Plan
    results: tuple[BuildResult, ...]


def check_build(settings: Settings, request: BuildRequest) -> tuple[CompilerCache | None, tuple[str, ...]]:
    """The compiler cache of the request's builds, and the command of its workflow (see command_for).

    Makes nothing. Raises UsageError for parts that contradict each other, and an error for a missing program.
    """
    name = request.compiler_cache or settings.compiler_cache
    cache = None if name is None else find_compiler_cache(name, settings.environ, cache=settings.cache)
    if request.cluster.is_here:
        return cache, ()
    from channel_tools.build.cluster import command_for  # noqa: PLC0415 - only builds on a cluster need it

    return cache, command_for(settings, request.cluster, jobs=request.foundation.jobs)


def build_stacks(
    settings: Settings,
    request: BuildRequest,
    *,
    progress: Progress,
    on_plan: Callable[[Plan], None],
    on_result: Callable[[BuildResult], None],
) -> BuildOutcome:
    """Build the request into the local channel; the foundation and the channel are created if missing.

    If offline, everything that is missing is one NetworkError before anything is written. Holds the channel's lock from
    planning to the last package, so that two runs never build the same package; on a cluster, the lock of the builds'
    folder. Raises the errors of planning, the foundation and check_served and, after all other builds, those of builds
    that failed.
    """
    expansion = expand_request(settings, request.plan, note=progress.note)
    compiler_cache, command = check_build(settings, request)
    build = _Build(
        settings=settings,
        request=request,
        expansion=expansion,
        compiler_cache=compiler_cache,
        command=command,
        attester=None if request.signing is None else Attester(settings, request.signing),
        progress=progress,
        on_plan=on_plan,
        on_result=on_result,
    )
    early = build.check_offline() if request.foundation.offline else None
    if expansion.foundation.is_made_here:
        build.make_foundation()
        if recorded_pytorch(settings, expansion.foundation.release) != expansion.pytorch:
            # its PyTorch was not found where it was looked for first, and the other one has another version
            expansion = expand_request(settings, request.plan)
            build = replace(build, expansion=expansion)
    channel = ensure_channel(settings.channel, expansion.foundation, subdirs=(current_platform(),))
    if not request.cluster.is_here:
        from channel_tools.build.cluster import await_earlier_builds  # noqa: PLC0415 - as in check_build

        await_earlier_builds(settings, request.cluster, progress.note)
    plan, results = build.run(channel, early)
    check_served(plan, request.plan)
    _record_stacks(channel, request.plan, expansion, plan)
    return BuildOutcome(plan=plan, results=tuple(results))


def _record_stacks(channel: Channel, request: PlanRequest, expansion: Expansion, plan: Plan) -> None:
    """Record for ``publish`` what the request named, if it is in the channel: a workflow may not have run."""
    present = indexed_files(channel, {package.subdir for package in plan.packages})
    if any(package.key not in present for package in plan.packages):
        return
    options = stack_options(request, None if request.every_stack else expansion.stacks[0])
    keys = tuple(sorted(str(package.key) for package in plan.packages))
    finished = datetime.now(UTC).isoformat(timespec="seconds")
    record_stack(channel.path, StackRecord(options=options, keys=keys, finished=finished))


@dataclass(frozen=True, kw_only=True, slots=True)
class _EarlyPlan:
    """A plan made before the channel was locked, and the foundation's index that it was made with."""

    plan: Plan
    index: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Build:
    """One run of ``build``: the expanded request, and what its parts share."""

    settings: Settings
    request: BuildRequest
    expansion: Expansion
    compiler_cache: CompilerCache | None
    command: tuple[str, ...]
    """Runs the workflow on a cluster; empty for builds on this machine."""
    attester: Attester | None
    progress: Progress
    on_plan: Callable[[Plan], None]
    on_result: Callable[[BuildResult], None]

    def make_foundation(self) -> None:
        """Make or update the registry foundation with what the request needs of it."""
        # only this foundation needs what downloads and unpacks wheels and Debian's packages
        from channel_tools.workflow.foundation import (  # noqa: PLC0415
            check_registry_versions,
            has_pytorch_for_cpu,
            how_to_get_cuda,
            make_registry_foundation,
            with_needs,
        )

        asked = with_needs(self.settings, self.request.foundation, self.expansion)
        if minors := pythons_to_build(self.settings, self.expansion):
            check_registry_versions(self.settings, asked, progress=self.progress)  # before minutes of compiling
            asked = replace(asked, pythons={minor: self._built_python(minor) for minor in minors})
        make_registry_foundation(self.settings, asked, progress=self.progress, attester=self.attester)
        if self.expansion.wants_cuda and has_pytorch_for_cpu(self.settings):
            how = how_to_get_cuda(self.request.plan.stack)
            self.progress.note(
                f"this foundation has PyTorch for the CPU, and the stack is used with CUDA's; 2.7 GB bring it: {how}"
            )

    def _built_python(self, minor: str) -> Path:
        """A further Python for the registry foundation; built if missing."""
        plan = PlanRequest(
            stack=PYTHON_STACK,
            python=minor,
            foundation=self.expansion.foundation.kind,
            base=self.expansion.foundation.release,
        )
        # a workflow that is only written runs no build: then they are built here, like the foundation
        cluster = self.request.cluster if self.request.cluster.on is not None else ClusterRequest()
        outcome = build_stacks(
            self.settings,
            replace(self.request, plan=plan, cluster=cluster),
            progress=self.progress,
            on_plan=self.on_plan,
            on_result=self.on_result,
        )
        (python,) = (package for package in outcome.plan.packages if package.name == PYTHON_STACK)
        return self.settings.channel / str(python.key)

    def run(self, channel: Channel, early: _EarlyPlan | None) -> tuple[Plan, list[BuildResult]]:
        """Plan and build into the channel, or write the workflow that does, and run it on a cluster if asked to."""
        results: list[BuildResult] = []
        on = self.request.cluster.on
        with contextlib.ExitStack() as locks:
            with channel_writer(channel) as writer:
                locks.enter_context(locked_builds(self.settings.work))
                record_further(channel)
                plan = self.plan(writer, early)
                jobs = self.jobs(writer, plan)
                if self.request.cluster.is_here:
                    results = self.run_here(writer, jobs)
                else:
                    builds = self.write_workflow(channel, jobs)
            if on is not None and jobs:  # each admission takes the channel's lock itself
                results = self.run_on_cluster(channel, builds, on)
        return plan, results

    def plan(self, writer: ChannelWriter, early: _EarlyPlan | None) -> Plan:
        """Plan while no other run can change the channel; an early plan is updated for the channel's content.

        The registry foundation's packages are in the channel afterwards, and the foundation lock has what the plan
        added to it.
        """
        if writer.channel.foundation.is_made_here:
            from channel_tools.workflow.foundation import link_foundation  # noqa: PLC0415 - as in make_foundation

            at_once = self.request.foundation.packages_at_once
            link_foundation(self.settings, writer, jobs=at_once, progress=self.progress)
        if early is None or early.index != self._index_digest():
            plan = plan_expansion(self.settings, self.expansion)
        else:
            plan = judge_again(early.plan, published_by_name(self.settings), force=self.request.plan.force)
        if self.request.foundation.offline:
            require_here(self.expansion.foundation, plan)
        if plan.lock is not None and plan.locks:
            kind = self.expansion.foundation.kind
            path = write_lock(self.settings.tree.root, kind, current_platform(), plan.lock)
            new = counted(len(plan.locks), "new environment has", "new environments have")
            of = self.expansion.foundation.traits.lock_words
            self.progress.note(f"{path}: recorded what {new} of {of}; commit it")
        self.on_plan(plan)
        return plan

    def jobs(self, writer: ChannelWriter, plan: Plan) -> list[BuildJob]:
        """The plan's jobs: sources complete, recipes rendered, and the channel's index showing what they solve from."""
        settings = self.settings
        sources = provide_sources(settings, plan, offline=self.request.foundation.offline, progress=self.progress)
        # solves must see the planned builds: an earlier build may be hidden by a newer one
        prefer_packages(writer, [str(package.key) for package in plan.packages if package.status == "skip"])
        rendered = self.request.cluster.rendered(settings)
        foundation = self.expansion.foundation
        views = asyncio.run(write_views(open_index(settings, foundation), foundation, plan, rendered))
        jobs = [
            replace(_job(settings, package, sources, rendered), views=views.get(package.key, ()))
            for package in plan.to_build
        ]
        stated = [self.expansion.resources.get(package.rendered.recipe_file.name) for package in plan.to_build]
        jobs = with_resources(jobs, stated, read_usage(writer.channel))
        if self.attester is not None and jobs and not self.request.cluster.is_here:
            _ = self.attester.signer  # a key that cannot be read is an error before hours of building
        return jobs

    def run_here(self, writer: ChannelWriter, jobs: Sequence[BuildJob]) -> list[BuildResult]:
        """Build on this machine, after what earlier builds of a cluster have finished was taken over."""
        gate = functools.cache(functools.partial(self._gate, writer.channel))
        on_result = functools.partial(self._record, writer.channel)

        def admit(package: Path) -> PackageInfo | None:
            return gate()(package)

        places = BuildPlaces(work=self.settings.work, logs=self.settings.logs, cache=self.settings.cache)
        finished = take_over_finished(
            self.settings.nodes,
            [] if self.request.plan.force else jobs,
            writer=writer,
            logs=places.logs,
            admit=admit,
            progress=self.progress,
            on_result=on_result,
        )
        finished_files = {result.job.file_name for result in finished}
        options = BuildOptions(
            platform=current_platform(),
            max_jobs=self.request.foundation.packages_at_once,
            cores=self.request.cores,
            environ=self.settings.environ,
            compiler_cache=self.compiler_cache,
        )
        built = build_packages(
            [job for job in jobs if job.file_name not in finished_files],
            options,
            writer=writer,
            places=places,
            progress=self.progress,
            admit=admit,
            meanwhile=gate,
            on_result=on_result,
        )
        return [*finished, *built]

    def _gate(self, channel: Channel) -> Callable[[Path], PackageInfo | None]:
        """The audit and the signing key, which are slow to import: a key that cannot be read ends the first builds."""
        from channel_tools.workflow.audit import package_gate  # noqa: PLC0415

        audited = package_gate(self.settings, channel, cores=self.request.cores, progress=self.progress)
        if self.attester is None:
            return audited
        _ = self.attester.signer
        return self.attester.attesting(audited)

    def _record(self, channel: Channel, result: BuildResult) -> None:
        """Record a result in the channel, and pass it on."""
        record_result(channel, result)
        self.on_result(result)

    def write_workflow(self, channel: Channel, jobs: Sequence[BuildJob]) -> RemoteBuilds:
        """Write the workflow of a cluster's builds."""
        from channel_tools.build.cluster import write_cluster_workflow  # noqa: PLC0415 - as in check_build
        from channel_tools.build.remote import RemoteBuilds  # noqa: PLC0415 - as in check_build

        settings, request = self.settings, self.request
        builds = RemoteBuilds(
            python=sys.executable,
            tree=settings.tree.root,
            output=settings.output,
            places=BuildPlaces(work=settings.nodes, logs=settings.logs, cache=settings.cache),
            platform=current_platform(),
            channels=channels_of(channel),
            jobs=tuple(jobs),
            compiler_cache=self.compiler_cache,
            attest=None if request.signing is None else request.signing.as_texts(),
        )
        write_cluster_workflow(settings, request.cluster, builds, force=request.plan.force)
        return builds

    def run_on_cluster(self, channel: Channel, builds: RemoteBuilds, on: str) -> list[BuildResult]:
        """Run the workflow that was written, to its end."""
        from channel_tools.build.cluster import run_on_cluster  # noqa: PLC0415 - as in check_build

        return run_on_cluster(
            self.command,
            self.request.cluster.workflow_folder(self.settings),
            builds,
            on=on,
            environ=self.settings.environ,
            progress=self.progress,
            on_result=functools.partial(self._record, channel),
        )

    def check_offline(self) -> _EarlyPlan | None:
        """Raise one NetworkError for everything that an offline build lacks, before anything is written; else the plan.

        If the foundation is up to date, that is the sources of the plan's builds. Without a foundation there is no
        plan, so every source of the request counts. Returns None if the foundation has to be made first, from earlier
        downloads.
        """
        settings, expansion = self.settings, self.expansion
        packages: Sequence[RenderedPackage] = expansion.packages
        problem: ChannelToolsError | None = None
        early = None
        try:
            if self._is_foundation_ready():
                early = _EarlyPlan(index=self._index_digest(), plan=plan_expansion(settings, expansion))
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

    def _index_digest(self) -> str:
        """The digest of the foundation's index as it is now; empty if it is in no folder."""
        address = self.expansion.foundation.address
        folder = self.settings.foundation if address is None else local_path(address)
        return "" if folder is None else index_digest(folder, current_platform())

    def _is_foundation_ready(self) -> bool:
        """Whether the foundation is up to date; False if it has to be made from earlier downloads.

        Raises NetworkError for a foundation that cannot be reached or made.
        """
        address = self.expansion.foundation.address
        if address is None:
            from channel_tools.workflow.foundation import is_up_to_date  # noqa: PLC0415 - as in make_foundation

            return is_up_to_date(self.settings, self.request.foundation, self.expansion, progress=self.progress)
        if local_path(address) is None:
            message = f"the foundation {address} needs the network"
            hint = "mirror it into a folder and give --foundation-channel file:///FOLDER"
            raise NetworkError(message, hint=hint)
        return True


def _job(settings: Settings, package: PlannedPackage, sources: SuppliedSources, rendered: Path) -> BuildJob:
    folder = render_folder(package, rendered, tree=settings.tree, places=sources)
    return BuildJob(
        file_name=package.file_name,
        subdir=package.subdir,
        recipe_folder=folder,
        waits_for=package.waits_for,
        work_name=variant_name(package.rendered),
    )
