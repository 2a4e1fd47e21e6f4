# SPDX-License-Identifier: BSD-3-Clause
"""Adds a package that was built elsewhere to the channel: a process started by Snakemake, one per package.

``python -m channel_tools.workflow.admission BUILDS.json STEM`` takes the channel's lock itself, since a workflow also
runs without our driver. Under the lock, it does the same as a build on one machine. Builds often end together, and each
process and each change of the indexes has its cost: so the first process adds all packages that wait, and those of the
others find nothing left to do. Packages that it cannot add are left to their own processes, which report why.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from channel_tools.build.model import FINISHED
from channel_tools.build.node import remove_build
from channel_tools.build.remote import Failure, Outcome, read_builds, read_outcome, results_of, write_outcome
from channel_tools.build.run import TOGETHER_BYTES
from channel_tools.build.schedule import take_in
from channel_tools.build.usage import record_usage
from channel_tools.channel import channel_writer, open_channel
from channel_tools.conda.package import PackageKey
from channel_tools.requests.attest import AttestRequest
from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.extras import skip_unused_plugins
from channel_tools.system.progress import NotesOnly
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.attest import Attester
from channel_tools.workflow.audit import package_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from channel_tools.build.remote import RemoteBuilds
    from channel_tools.channel import ChannelWriter
    from channel_tools.conda.archive import PackageInfo

_LOCK_WAIT_S = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finished:
    """A successful build whose package is not in the channel yet; ``folder`` is the build's."""

    stem: str
    folder: Path
    outcome: Outcome

    @property
    def package(self) -> Path:
        """The file that it made."""
        return cast("Path", self.outcome.package)


def admit_package(builds_file: Path, stem: str, *, cores: int) -> bool:
    """Audit the package and add it to the channel; its ``.admitted`` or ``.failed`` file has the outcome.

    Others that wait are added with it and get an ``.entered`` file. Returns False if the build failed or the audit
    rejected the package; the next run tries again.
    """
    builds, results = read_builds(builds_file), results_of(builds_file, stem)
    outcome, progress = read_outcome(results.built), NotesOnly()
    if outcome.failure is None and outcome.package is None and not results.entered.is_file():
        write_outcome(results.admitted, outcome)  # Snakemake was asked to rerun a package that is in the channel
        return True
    try:
        if outcome.failure is not None:
            raise outcome.failure.as_error()
        own = _Finished(stem=stem, folder=builds.places.work / builds.job(stem).folder_name, outcome=outcome)
        entered = _take_in(builds, builds_file, own, cores, progress)
    except ChannelToolsError as err:
        notes = tuple(progress.notes)
        write_outcome(results.failed, Outcome(seconds=outcome.seconds, failure=Failure.of(err), notes=notes))
        results.built.unlink()
        return False
    results.entered.rename(results.admitted)
    for finished in entered:
        remove_build(finished.folder)
    return True


def _take_in(
    builds: RemoteBuilds, builds_file: Path, own: _Finished, cores: int, progress: NotesOnly
) -> list[_Finished]:
    """Add ``own`` and others to the channel, unless another process has; returns those that were added."""
    settings = Settings(
        tree=Tree(root=builds.tree), output=builds.output, cache=builds.places.cache, environ=dict(os.environ)
    )
    channel = open_channel(settings.channel)
    gate = package_gate(settings, channel, cores=cores, progress=progress)
    if builds.attest is not None:
        gate = Attester(settings, AttestRequest.of_texts(builds.attest)).attesting(gate)
    with channel_writer(channel, wait_s=_LOCK_WAIT_S) as writer:
        if results_of(builds_file, own.stem).entered.is_file():
            return []
        try:
            entered = _enter(writer, own, _others(builds, builds_file, own.stem), gate, progress)
        except ChannelToolsError:
            (own.folder / FINISHED).unlink()  # a rejected package is built again
            raise
        record_usage(
            channel,
            {finished.stem: finished.outcome.usage for finished in entered if finished.outcome.usage is not None},
        )
        for finished in entered:
            package = PackageKey.of(finished.package).path_in(channel.path)
            notes = finished.outcome.notes + (tuple(progress.notes) if finished is own else ())
            write_outcome(
                results_of(builds_file, finished.stem).entered, replace(finished.outcome, package=package, notes=notes)
            )
    return entered


def _enter(
    writer: ChannelWriter,
    own: _Finished,
    others: Sequence[_Finished],
    gate: Callable[[Path], PackageInfo | None],
    progress: NotesOnly,
) -> list[_Finished]:
    """Add ``own`` and those of the others that can be added; returns these. Raises the error that rejects ``own``."""
    outcomes = take_in(writer, [own.package, *(other.package for other in others)], admit=gate, progress=progress)
    if isinstance(error := outcomes[own.package], ChannelToolsError):
        raise error
    return [own, *(other for other in others if isinstance(outcomes[other.package], Path))]


def _others(builds: RemoteBuilds, builds_file: Path, own: str) -> list[_Finished]:
    """Other successful builds that wait for their admission, in the plan's order."""
    names = {path.name for path in results_of(builds_file, own).folder.iterdir()}
    waiting, room_bytes = [], TOGETHER_BYTES
    for job in (job for job in builds.jobs if job.stem != own):
        results = results_of(builds_file, job.stem)
        if results.built.name not in names or not names.isdisjoint({results.entered.name, results.admitted.name}):
            continue
        with contextlib.suppress(FileNotFoundError):  # Snakemake removes the output of a job that counts as lost
            folder = builds.places.work / job.folder_name
            finished = _Finished(stem=job.stem, folder=folder, outcome=read_outcome(results.built))
            if finished.outcome.failure is None and (size_bytes := finished.package.stat().st_size) <= room_bytes:
                room_bytes -= size_bytes
                waiting.append(finished)
    return waiting


if __name__ == "__main__":
    skip_unused_plugins()
    _admitted = admit_package(Path(sys.argv[1]), sys.argv[2], cores=len(os.sched_getaffinity(0)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if _admitted else 1)
