# SPDX-License-Identifier: BSD-3-Clause
"""Builds one package in a scheduler's job: ``python -m channel_tools.build.node BUILDS.json STEM CORES``.

The child process is the same as for a build on one machine. The package stays in its build's folder, which all machines
can access, until the driver adds it to the channel. A lock in the file system keeps a second job from building the same
package: if a driver died and its job did not, the next driver's job waits for that job and uses its package.

A build that was killed, or that failed when the kernel had killed a process of the job for lack of memory, leaves no
result: the scheduler's job then counts as lost and is submitted again with more memory.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.model import FINISHED, BuildOptions
from channel_tools.build.remote import Failure, Outcome, read_builds, read_outcome, results_of, write_outcome
from channel_tools.build.worker import left_where_denied, notes_of, package_of, start_child, usage_of, was_killed
from channel_tools.system.errors import BuildError, ChannelError, ChannelToolsError
from channel_tools.system.files import remove_tree
from channel_tools.system.kernel import count_oom_kills
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import end_process_group

if TYPE_CHECKING:
    from collections.abc import Collection

    from channel_tools.build.model import BuildJob
    from channel_tools.build.remote import RemoteBuilds


def build_package(builds_file: Path, stem: str, *, cores: int) -> None:
    """Build the package, unless it is already built; its ``.built`` file has the outcome.

    Raises BuildError for a build that was killed, and writes no such file.
    """
    builds = read_builds(builds_file)
    job = builds.job(stem)
    folder = builds.places.work / job.folder_name
    results = results_of(builds_file, stem)
    with exclusive_lock(lock_of(folder), resource=f"the build folder {folder}", timeout_s=math.inf):
        with contextlib.suppress(FileNotFoundError):  # built by another job, which was believed lost
            write_outcome(results.built, replace(read_outcome(results.admitted), package=None))
            return
        outcome = finished_build(folder, job)
        if outcome is None:
            shutil.rmtree(folder, ignore_errors=True)
            outcome = _build(builds, job, cores)
            if outcome.failure is None:
                write_outcome(folder / FINISHED, outcome)
        write_outcome(results.built, outcome)


def finished_build(folder: Path, job: BuildJob) -> Outcome | None:
    """The outcome that a successful job for this package left there; None for builds with other digests."""
    try:
        outcome = read_outcome(folder / FINISHED)
    except FileNotFoundError:
        return None
    return outcome if outcome.package is not None and outcome.package.name == job.file_name else None


def lock_of(folder: Path) -> Path:
    """The lock of a build's folder, beside it."""
    return folder.with_name(f"{folder.name}.lock")


def remove_build(folder: Path) -> None:
    """Remove a build's folder and its lock: its package is in the channel."""
    shutil.rmtree(folder, ignore_errors=True)
    for lock in (lock_of(folder), lock_of(folder).with_suffix(".lock.owner")):
        lock.unlink(missing_ok=True)


def clear_builds(work: Path, *, keep: Collection[str], needed: Collection[str] = ()) -> None:
    """Remove the build folders in ``work``, except those that a job is still building in.

    Finished ones among ``keep`` stay. ``needed`` and the errors are those of left_where_denied.
    """
    for folder in sorted(work.iterdir()) if work.is_dir() else ():
        with left_where_denied(folder, needed):
            if folder.is_dir() and not (folder.name in keep and (folder / FINISHED).is_file()):
                with contextlib.suppress(ChannelError), exclusive_lock(lock_of(folder), resource=str(folder)):
                    remove_tree(folder)


def _build(builds: RemoteBuilds, job: BuildJob, cores: int) -> Outcome:
    options = BuildOptions(
        platform=builds.platform,
        max_jobs=1,
        cores=cores,
        environ=os.environ,
        compiler_cache=builds.compiler_cache,
    )
    started_s, oom_kills = time.monotonic(), count_oom_kills()
    killed = False
    try:
        child = start_child(job, options, places=builds.places, channels=builds.channels, cores=cores)
        try:
            child.process.wait()
        finally:
            end_process_group(child.process)
        killed = was_killed(child)
        package, usage, notes = package_of(child), usage_of(child), notes_of(child)
        return Outcome(seconds=child.seconds(), package=package, usage=usage, notes=notes)
    except ChannelToolsError as err:
        if killed or count_oom_kills() > oom_kills:
            raise BuildError(f"{err.message}\nit was killed, or ran out of memory: the job counts as lost") from None
        return Outcome(seconds=time.monotonic() - started_s, failure=Failure.of(err))


if __name__ == "__main__":
    try:
        build_package(Path(sys.argv[1]), sys.argv[2], cores=int(sys.argv[3]))
    except ChannelToolsError as _error:
        sys.exit(str(_error))
