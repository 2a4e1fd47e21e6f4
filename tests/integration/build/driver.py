# SPDX-License-Identifier: BSD-3-Clause
"""A program that builds toy recipes, for tests that interrupt it; arguments: FOLDER NAME...

Each waits for the one before. FOLDER holds the channel and ``recipes/NAME``. It ends as the command line does: 130 for
Ctrl-C, 128 + the signal else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from channel_tools.audit.run import Gate, distinctive_paths
from channel_tools.build.compiler_cache import CompilerCache
from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces, BuildResult
from channel_tools.build.schedule import build_packages, locked_builds
from channel_tools.channel import channel_writer, open_channel
from channel_tools.conda.archive import PackageInfo
from channel_tools.system.errors import Terminated, signals_raised
from channel_tools.system.progress import SilentProgress

BUILD = "h_0"


def toy_job(folder: Path, name: str, *waits_for: str) -> BuildJob:
    """The job for the toy recipe ``folder/recipes/name``."""
    return BuildJob(
        file_name=f"{name}-1.0-{BUILD}.conda",
        subdir="noarch",
        recipe_folder=folder / "recipes" / name,
        waits_for=tuple(f"{other}-1.0-{BUILD}.conda" for other in waits_for),
    )


def build(
    folder: Path,
    jobs: list[BuildJob],
    *,
    max_jobs: int = 2,
    work: Path | None = None,
    compiler_cache: CompilerCache | None = None,
) -> list[BuildResult]:
    """Build ``jobs`` into ``folder/channel``; returns every job's result, in the order in which they came."""
    results: list[BuildResult] = []
    places = BuildPlaces(work=work or folder / "work", logs=folder / "logs", cache=folder / "cache")
    gate = Gate(channel=folder / "channel", build_paths=distinctive_paths([places.work, folder / "recipes"]))

    def admit(package: Path) -> PackageInfo | None:
        return gate.admit(package).info

    with channel_writer(open_channel(folder / "channel")) as writer, locked_builds(places.work):
        build_packages(
            jobs,
            BuildOptions(
                platform="linux-64",
                max_jobs=max_jobs,
                cores=2,
                environ=os.environ,
                compiler_cache=compiler_cache,
            ),
            writer=writer,
            places=places,
            progress=SilentProgress(),
            admit=admit,
            on_result=results.append,
        )
    return results


def main(arguments: list[str]) -> int:
    """Build the named toys; the exit status."""
    folder = Path(arguments[0])
    try:
        with signals_raised():
            names = arguments[1:]
            build(folder, [toy_job(folder, name, *names[:number][-1:]) for number, name in enumerate(names)])
    except Terminated as err:
        return 128 + err.number
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
