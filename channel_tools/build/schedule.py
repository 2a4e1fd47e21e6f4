# SPDX-License-Identifier: BSD-3-Clause
"""Building a plan: as many packages at once as allowed, each as soon as what it waits for is in the channel.

One thread waits for the children through their process descriptors, so an interrupt arrives at once. A package enters
the channel and its index before anything that waits for it starts, since dependents solve from the channel.
"""

from __future__ import annotations

import graphlib
from typing import TYPE_CHECKING

from channel_tools.build.children import Child, clear_work, start_child
from channel_tools.build.failures import raise_failures
from channel_tools.build.run import BuildRun
from channel_tools.channel.publish import add_packages, check_package, prefer_packages
from channel_tools.channel.store import published_packages
from channel_tools.errors import ConfigError
from channel_tools.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from channel_tools.build.model import BuildJob, BuildPlaces, BuildResult
    from channel_tools.channel.model import Channel, ChannelWriter
    from channel_tools.progress import Progress


def build_packages(
    jobs: Sequence[BuildJob],
    *,
    writer: ChannelWriter,
    places: BuildPlaces,
    platform: str,
    max_jobs: int,
    cores: int,
    environ: Mapping[str, str],
    progress: Progress,
    admit: Callable[[Path], None],
    on_result: Callable[[BuildResult], None] | None = None,
    conda_build: Path | None = None,
) -> list[BuildResult]:
    """Build ``jobs`` into the writer's channel, at most ``max_jobs`` at once.

    Those that can run at the same time share ``cores``. Environments are solved from the channel and, where its
    foundation has an address, from there. A failure holds back only what waits for it; the others are built.
    ``admit`` cleans and judges every finished package and raises when it must not enter the channel. ``on_result``
    hears of every job once, when its fate is known. ``conda_build`` is the program that builds, None for the engine.
    Raises at the end the error of the builds that failed
    (BuildError, SolveError, DiskFullError ...), with the last lines of their logs; ConfigError for jobs that wait for
    each other in a circle. An interrupt ends all builds and their children before it goes on; what was built until then
    is in the channel.
    """
    _check_order(jobs)

    def start(job: BuildJob, at_once: int) -> Child:
        share, channels = max(1, cores // at_once), channels_of(writer.channel)
        return start_child(
            job,
            places=places,
            channels=channels,
            platform=platform,
            cores=share,
            environ=environ,
            conda_build=conda_build,
        )

    with exclusive_lock(places.work / ".lock", what=f"the build folder {places.work}"):
        clear_work(places.work)
        results = []

        def enter(package: Path) -> Path:
            return take_in(writer, package, admit=admit, progress=progress)

        with BuildRun(jobs, start=start, enter=enter, progress=progress) as run:
            for result in run.results(max_jobs):
                results.append(result)
                if on_result is not None:
                    on_result(result)
    raise_failures(results)
    return results


def channels_of(channel: Channel) -> tuple[str, ...]:
    """The addresses that builds into ``channel`` solve from, in order of priority."""
    address = channel.foundation.address
    return (channel.address,) if address is None else (channel.address, address)


def take_in(writer: ChannelWriter, package: Path, *, admit: Callable[[Path], None], progress: Progress) -> Path:
    """Add a finished package to the channel, unless it was built before and only forced now; where it is there.

    Raises what ``admit`` raises when it must not enter.
    """
    admit(package)
    destination = writer.channel.path / package.parent.name / package.name
    digests = {published.path: published.digest for published in published_packages(writer.channel)}
    digest = digests.get(destination)
    if digest is not None and check_package(package).digest == digest:
        progress.note(
            f"{package.name}: built again and passed; published files never change, so the channel keeps its own"
        )
        prefer_packages(writer, [f"{package.parent.name}/{package.name}"])
    else:
        add_packages(writer, [package])
    return destination


def _check_order(jobs: Sequence[BuildJob]) -> None:
    names = [job.file_name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{twice[0]} is to be built twice", hint="a plan names each package once")
    try:
        graphlib.TopologicalSorter({job.file_name: job.waits_for for job in jobs}).prepare()
    except graphlib.CycleError as err:
        raise ConfigError(f"these packages wait for each other: {' -> '.join(err.args[1])}") from None
