# SPDX-License-Identifier: BSD-3-Clause
"""A package that was built elsewhere enters the channel: a process beside Snakemake, one per package.

``python -m channel_tools.workflow.admission BUILDS.json STEM`` takes the channel's lock itself, since a workflow also
runs without a driver of ours. What it does under the lock is what a build at home does.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.node import FINISHED, lock_of
from channel_tools.build.remote import Failure, Outcome, read_builds, read_outcome, results_of, write_outcome
from channel_tools.build.schedule import take_in
from channel_tools.build.usage import record_usage
from channel_tools.channel import channel_writer, open_channel
from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.progress import NotesOnly
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.attest import Attester, AttestRequest
from channel_tools.workflow.audit import package_gate

if TYPE_CHECKING:
    from channel_tools.build.remote import RemoteBuilds

_LOCK_WAIT_S = 3600.0


def admit_package(builds_file: Path, stem: str, *, cores: int) -> bool:
    """Audit the package and take it into the channel; its ``.admitted`` or ``.failed`` file says how it went.

    False when the build failed or the audit refused what it made; both are tried again by the next run.
    """
    builds, results = read_builds(builds_file), results_of(builds_file, stem)
    folder = Path(builds.work, builds.job(stem).folder_name)
    outcome, progress = read_outcome(results.built), NotesOnly()
    try:
        if outcome.failure is not None:
            raise outcome.failure.as_error()
        package = _take_in(builds, stem, outcome, cores, progress)
    except ChannelToolsError as err:
        notes = tuple(progress.notes)
        write_outcome(results.failed, Outcome(seconds=outcome.seconds, failure=Failure.of(err), notes=notes))
        results.built.unlink()
        return False
    write_outcome(results.admitted, replace(outcome, package=str(package), notes=tuple(progress.notes)))
    shutil.rmtree(folder, ignore_errors=True)
    for lock in (lock_of(folder), lock_of(folder).with_suffix(".lock.owner")):
        lock.unlink(missing_ok=True)
    return True


def _take_in(builds: RemoteBuilds, stem: str, outcome: Outcome, cores: int, progress: NotesOnly) -> Path:
    settings = Settings(
        tree=Tree(root=Path(builds.tree)),
        output=Path(builds.output),
        cache=Path(builds.cache),
        environ=dict(os.environ),
    )
    channel = open_channel(settings.channel)
    gate = package_gate(settings, channel, cores=cores, progress=progress)
    if builds.attest is not None:
        gate = Attester(settings, AttestRequest.of_texts(builds.attest)).attesting(gate)
    with channel_writer(channel, wait_s=_LOCK_WAIT_S) as writer:
        try:
            package = take_in(writer, Path(str(outcome.package)), admit=gate, progress=progress)
        except ChannelToolsError:
            Path(builds.work, builds.job(stem).folder_name, FINISHED).unlink()  # what was refused is built anew
            raise
        if outcome.usage is not None:
            record_usage(channel, stem, outcome.usage)
        return package


if __name__ == "__main__":
    _admitted = admit_package(Path(sys.argv[1]), sys.argv[2], cores=len(os.sched_getaffinity(0)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if _admitted else 1)
