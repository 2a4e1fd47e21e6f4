# SPDX-License-Identifier: BSD-3-Clause
"""Builds a plan on a cluster: writes it as a Snakemake workflow, and runs Snakemake.

The driver holds the lock of the builds' folder, not the channel's, which each admission takes for itself: a second
driver is rejected, but other commands may write to the channel meanwhile.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from channel_tools.build.failures import raise_failures
from channel_tools.build.node import clear_builds
from channel_tools.build.schedule import builds_lock, check_order
from channel_tools.build.snakemake import (
    check_workflow_folder,
    find_snakemake,
    snakemake_command,
    write_workflow,
)
from channel_tools.build.snakemake_run import await_earlier_run, run_workflow
from channel_tools.build.worker import check_paths
from channel_tools.system.errors import UsageError
from channel_tools.system.locks import is_locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildResult
    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.requests.build import ClusterRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings


def command_for(settings: Settings, request: ClusterRequest, *, jobs: int | None) -> tuple[str, ...]:
    """The command that will run the workflow, empty for one that is only written; makes nothing.

    ``jobs`` is how many jobs may wait or run at once, None for the profile's number. Raises the error for a request
    that cannot be run.
    """
    check_workflow_folder(request.workflow_folder(settings))
    check_work_is_shared(settings)
    if request.on is None:
        return ()
    environ, folder = settings.environ, request.workflow_folder(settings)
    return tuple(snakemake_command(find_snakemake(environ), folder, on=request.on, jobs=jobs, environ=environ))


def check_work_is_shared(settings: Settings) -> None:
    """Raise UsageError if the work folder is neither in the output folder nor in the cache, which machines share."""
    if not any(settings.work.is_relative_to(folder) for folder in (settings.output, settings.cache)):
        message = f"{settings.work}: builds would run in this folder, which other machines cannot access"
        hint = "give --output a folder that they can access, of at most 60 bytes of A-Z a-z 0-9 . _ + @ ~ -"
        raise UsageError(message, hint=hint)


def await_earlier_builds(settings: Settings, request: ClusterRequest, note: Callable[[str], None]) -> None:
    """Wait for what is left of a killed command (await_earlier_run), unless one runs: that locks us out in any case."""
    if not is_locked(builds_lock(settings.work)):
        await_earlier_run(request.workflow_folder(settings), note)


def write_cluster_workflow(settings: Settings, request: ClusterRequest, builds: RemoteBuilds, *, force: bool) -> None:
    """Write the workflow of ``builds``; the caller holds ``locked_builds``.

    The folders of earlier builds are removed, except finished ones that only have to be added to the channel (unless
    ``force``). Raises as build_packages does before it starts, and the errors of write_workflow.
    """
    check_order(builds.jobs)
    check_paths(builds.jobs, builds.places)
    needed = [job.folder_name for job in builds.jobs]
    clear_builds(builds.places.work, keep=() if force else needed, needed=needed)
    write_workflow(request.workflow_folder(settings), builds)


def run_on_cluster(
    command: Sequence[str],
    folder: Path,
    builds: RemoteBuilds,
    *,
    on: str,
    environ: Mapping[str, str],
    progress: Progress,
    on_result: Callable[[BuildResult], None],
) -> list[BuildResult]:
    """Run the workflow in ``folder`` to its end; ``on`` is as in snakemake_command, the rest as in build_packages."""
    results: list[BuildResult] = []
    with progress.task("building on the cluster", total=len(builds.jobs)) as task:
        ended = run_workflow(
            command,
            folder,
            builds.jobs,
            places=builds.places,
            environ=environ,
            on=on,
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
