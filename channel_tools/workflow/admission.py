# SPDX-License-Identifier: BSD-3-Clause
"""Adds a package that was built elsewhere to the channel: a process started by Snakemake, one per package.

``python -m channel_tools.workflow.admission BUILDS.json STEM`` takes the channel's lock itself, since a workflow also
runs without our driver. Under the lock, it does the same as a build on one machine.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from channel_tools.build.model import FINISHED
from channel_tools.build.node import remove_build
from channel_tools.build.remote import Failure, Outcome, read_builds, read_outcome, results_of, write_outcome
from channel_tools.build.schedule import take_in
from channel_tools.build.usage import record_usage
from channel_tools.channel import channel_writer, open_channel
from channel_tools.requests.attest import AttestRequest
from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.extras import skip_unused_plugins
from channel_tools.system.progress import NotesOnly
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.attest import Attester
from channel_tools.workflow.audit import package_gate

if TYPE_CHECKING:
    from channel_tools.build.remote import RemoteBuilds

_LOCK_WAIT_S = 3600.0


def admit_package(builds_file: Path, stem: str, *, cores: int) -> bool:
    """Audit the package and add it to the channel; its ``.admitted`` or ``.failed`` file has the outcome.

    Returns False if the build failed or the audit rejected the package; the next run tries again.
    """
    builds, results = read_builds(builds_file), results_of(builds_file, stem)
    outcome, progress = read_outcome(results.built), NotesOnly()
    if outcome.failure is None and outcome.package is None:
        write_outcome(results.admitted, outcome)  # Snakemake was asked to rerun a package that is in the channel
        return True
    folder = builds.places.work / builds.job(stem).folder_name
    try:
        if outcome.failure is not None:
            raise outcome.failure.as_error()
        package = _take_in(builds, stem, outcome, folder / FINISHED, cores=cores, progress=progress)
    except ChannelToolsError as err:
        notes = tuple(progress.notes)
        write_outcome(results.failed, Outcome(seconds=outcome.seconds, failure=Failure.of(err), notes=notes))
        results.built.unlink()
        return False
    write_outcome(results.admitted, replace(outcome, package=package, notes=outcome.notes + tuple(progress.notes)))
    remove_build(folder)
    return True


def _take_in(
    builds: RemoteBuilds, stem: str, outcome: Outcome, finished: Path, *, cores: int, progress: NotesOnly
) -> Path:
    """Add the package to the channel; its path there. A rejected one is built again: it is no longer ``finished``."""
    settings = Settings(
        tree=Tree(root=builds.tree), output=builds.output, cache=builds.places.cache, environ=dict(os.environ)
    )
    channel = open_channel(settings.channel)
    gate = package_gate(settings, channel, cores=cores, progress=progress)
    if builds.attest is not None:
        gate = Attester(settings, AttestRequest.of_texts(builds.attest)).attesting(gate)
    with channel_writer(channel, wait_s=_LOCK_WAIT_S) as writer:
        try:
            package = take_in(writer, cast("Path", outcome.package), admit=gate, progress=progress)
        except ChannelToolsError:
            finished.unlink()
            raise
        if outcome.usage is not None:
            record_usage(channel, {stem: outcome.usage})
    return package


if __name__ == "__main__":
    skip_unused_plugins()
    _admitted = admit_package(Path(sys.argv[1]), sys.argv[2], cores=len(os.sched_getaffinity(0)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if _admitted else 1)
