# SPDX-License-Identifier: BSD-3-Clause
"""A plan's builds on a cluster: written as a Snakemake workflow, and run by Snakemake.

The driver holds the lock of the builds' folder, not the channel's, which each admission takes for itself: a second
driver is refused, other commands may write to the channel meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.build.failures import raise_failures
from channel_tools.build.model import BuildPlaces
from channel_tools.build.node import clear_builds
from channel_tools.build.remote import RemoteBuilds
from channel_tools.build.resume import resumable_builds
from channel_tools.build.schedule import channels_of, check_order
from channel_tools.build.snakemake import (
    check_workflow_folder,
    find_snakemake,
    run_workflow,
    snakemake_command,
    write_workflow,
)
from channel_tools.build.worker import check_paths
from channel_tools.plan import current_platform
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildJob, BuildResult, BuildTools
    from channel_tools.channel import Channel
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings
    from channel_tools.workflow.attest import AttestRequest

_WORKFLOW = "snakemake"
_NODES = "nodes"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRequest:
    """Where builds run: ``on`` is ``slurm``, ``pbs`` or the folder of a Snakemake profile, None with a ``destination``.

    That is where the workflow is written to, and nothing is run. ``jobs`` is how many jobs may wait or run at once,
    None what the profile says.
    """

    on: str | None = None
    jobs: int | None = None
    destination: Path | None = None

    def workflow_folder(self, settings: Settings) -> Path:
        """Where the workflow is."""
        return settings.output / _WORKFLOW if self.destination is None else self.destination.absolute()

    def rendered(self, settings: Settings) -> Path:
        """Where the recipe folders are that it builds from."""
        return settings.rendered if self.destination is None else self.workflow_folder(settings) / "recipes"


@dataclass(frozen=True, kw_only=True, slots=True)
class Workflow:
    """A workflow folder, what it builds, and the command that runs it: none for one that is only written.

    ``on`` is as in snakemake_command, empty for one that is only written.
    """

    folder: Path
    command: tuple[str, ...]
    jobs: tuple[BuildJob, ...]
    places: BuildPlaces
    environ: Mapping[str, str]
    on: str

    def run(self, *, progress: Progress, on_result: Callable[[BuildResult], None]) -> list[BuildResult]:
        """Run it to its end; results and errors as those of build_packages."""
        results: list[BuildResult] = []
        if not (self.jobs and self.command):
            return results
        with progress.task("building on the cluster", total=len(self.jobs)) as task:
            ended = run_workflow(
                self.command,
                self.folder,
                self.jobs,
                places=self.places,
                environ=self.environ,
                on=self.on,
                on_state=task.show,
                on_warning=progress.note,
            )
            with contextlib.closing(ended):
                for result in ended:
                    results.append(result)
                    for note in result.notes:
                        progress.note(note)
                    on_result(result)
                    task.advance(1)
        raise_failures(results)
        return results


def nodes_folder(settings: Settings) -> Path:
    """Where the builds of a cluster's jobs run."""
    return settings.work / _NODES


def command_for(settings: Settings, request: ClusterRequest, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The command that will run the workflow, none for one that is only written; nothing is made yet.

    Raises the error of a request that could not be run.
    """
    check_workflow_folder(request.workflow_folder(settings))
    check_work_is_shared(settings)
    if request.on is None:
        return ()
    program, folder = find_snakemake(environ), request.workflow_folder(settings)
    return tuple(snakemake_command(program, folder, on=request.on, jobs=request.jobs, environ=environ))


def check_work_is_shared(settings: Settings) -> None:
    """Raise UsageError where the work folder is neither in the output folder nor in the cache, which machines share."""
    if not any(settings.work.is_relative_to(place) for place in (settings.output, settings.cache)):
        message = f"{settings.work}: work would be done there, which other machines do not see"
        hint = "choose with --output a folder that they see, of at most 60 bytes of A-Z a-z 0-9 . _ + @ ~ -"
        raise UsageError(message, hint=hint)


def workflow_of(
    settings: Settings,
    channel: Channel,
    request: ClusterRequest,
    jobs: Sequence[BuildJob],
    *,
    command: tuple[str, ...],
    environ: Mapping[str, str],
    tools: BuildTools,
    from_failed: bool,
    note: Callable[[str], None],
    force: bool,
    attest: AttestRequest | None,
) -> Workflow:
    """Write the workflow of ``jobs``, which ``command`` runs, while the caller holds ``locked_builds``.

    What earlier builds left is removed, except what was built and only has to enter the channel (unless ``force``).
    Raises as build_packages does before it starts, and what write_workflow raises.
    """
    places = BuildPlaces(work=nodes_folder(settings), logs=settings.logs, cache=settings.cache)
    folder = request.workflow_folder(settings)
    check_order(jobs)
    check_paths(jobs, places)
    failed = resumable_builds(places.work, jobs, note=note) if from_failed else []
    clear_builds(
        places.work,
        keep=() if force else [job.folder_name for job in jobs],
        failed=[job.folder_name for job in failed],
    )
    builds = RemoteBuilds(
        python=sys.executable,
        tree=settings.tree.root,
        output=settings.output,
        places=places,
        platform=current_platform(),
        channels=channels_of(channel),
        jobs=tuple(jobs),
        tools=tools,
        from_failed=from_failed,
        attest=None if attest is None else attest.as_texts(),
    )
    write_workflow(folder, builds)
    return Workflow(
        folder=folder, command=command, jobs=tuple(jobs), places=places, environ=environ, on=request.on or ""
    )
