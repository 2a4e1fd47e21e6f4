# SPDX-License-Identifier: BSD-3-Clause
"""Builds a published package again from the recipe inside it, in the environments that it records.

The channel is only read. The recorded packages are linked into a small channel of their own, so that the engine solves
for exactly these; sources come from the source store.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from channel_tools.build.failures import raise_failures
from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces
from channel_tools.build.recorded import read_recorded
from channel_tools.build.schedule import BuildRun, locked_builds
from channel_tools.build.worker import check_paths, clear_work, start_child
from channel_tools.channel import open_channel
from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.store import indexed_files
from channel_tools.conda.comparison import compare_entries, read_entries, verdict_of
from channel_tools.conda.package import PACKAGE_SUFFIX, PackageKey, subdirs_of
from channel_tools.conda.platforms import current_platform
from channel_tools.sources.store import SourceStore
from channel_tools.system.counting import counted
from channel_tools.system.errors import UsageError, nearest_names_hint
from channel_tools.system.files import sha256_of_file
from channel_tools.system.settings import available_cores
from channel_tools.system.work_folder import make_work_folder, temporary_folder
from channel_tools.workflow.sources import fetch_missing, missing_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.build.recorded import EnvironmentChannel, RecordedBuild
    from channel_tools.build.worker import Child
    from channel_tools.conda.comparison import Difference, Verdict
    from channel_tools.requests.build import RebuildRequest
    from channel_tools.system.progress import Progress
    from channel_tools.system.settings import Settings

_ENGINE = "py-rattler-build"
_DOWNLOADS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """The published package, the one built from its recipe, and notes on differences in how it was built."""

    published: Path
    published_sha256: str
    rebuilt: Path
    rebuilt_sha256: str
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildComparison:
    """The differences of two packages."""

    verdict: Verdict
    differences: tuple[Difference, ...]


def compare_packages(rebuilt: Rebuilt) -> RebuildComparison:
    """Compare a package with its rebuild, file by file. Raises IntegrityError for a damaged one."""
    if rebuilt.published_sha256 == rebuilt.rebuilt_sha256:
        return RebuildComparison(verdict="same", differences=())
    differences = compare_entries(read_entries(rebuilt.published), read_entries(rebuilt.rebuilt))
    return RebuildComparison(verdict=verdict_of(differences), differences=differences)


def rebuild_package(settings: Settings, request: RebuildRequest, *, progress: Progress) -> Rebuilt:
    """Build a published package again; the channel is not changed.

    Raises UsageError for a package that does not exist or was not built by this program, FoundationError if packages it
    was built with are no longer in the channel, NetworkError for missing sources, and the errors of building.
    """
    destination = request.folder(settings)
    if (destination / RECORD_FOLDER).is_dir():
        message = f"{destination}: is the folder of a channel; rebuilt packages are not added to channels"
        raise UsageError(message, hint="name another folder with --output-dir")
    path = find_package(settings, request.package)
    channel = open_channel(path.parents[1])
    recorded = read_recorded(path)
    make_work_folder(settings.work)
    work = settings.work / "rebuild"
    with locked_builds(work), temporary_folder(work) as holder:
        recipe = holder / "recipe"
        job = BuildJob(file_name=path.name, subdir=path.parent.name, recipe_folder=recipe)
        clear_work(work, needed=[job.folder_name])
        store = _provide(settings, recorded, request, progress)
        notes = recorded.write_recipe(recipe, store)
        channels = recorded.link_environment(
            channel, holder, environ=settings.environ, offline=request.offline, progress=progress
        )
        places = BuildPlaces(work=work, logs=settings.logs / "rebuild", cache=settings.cache)
        rebuilt = _build(job, places, destination, channels, settings.environ, progress)
    return Rebuilt(
        published=path,
        published_sha256=recorded.info.sha256,
        rebuilt=rebuilt,
        rebuilt_sha256=sha256_of_file(rebuilt),
        notes=(*_engine_note(recorded), *notes),
    )


def find_package(settings: Settings, text: str) -> Path:
    """The file of a package by its path, its file name, or its name if the local channel shows one build of it.

    Raises UsageError if there is none or more than one, ChannelError if there is no local channel.
    """
    path = Path(text).absolute()
    if path.name.endswith(PACKAGE_SUFFIX) and path.is_file():
        if not (path.parents[1] / RECORD_FOLDER).is_dir():
            message = f"{path}: is not in the folder of a channel made by channel_tools"
            raise UsageError(
                message, hint="name it as CHANNEL/SUBDIR/NAME.conda, in a copy of its channel (mirror import)"
            )
        return path
    channel = open_channel(settings.channel)
    own = [file for file in indexed_files(channel, subdirs_of(channel.files)).values() if not file.ref.foundation]
    files = [file for file in own if text in {file.ref.file_name, str(file.ref.key)}]
    files = files or [file for file in own if file.row.name == text and file.hidden is None]
    if not files:
        hint = nearest_names_hint(text, {file.row.name for file in own}, noun="package built from a recipe")
        raise UsageError(f"{channel.path}: has no package {text!r} that was built from a recipe", hint=hint)
    if len(files) > 1:
        names = ", ".join(sorted(file.ref.file_name for file in files))
        raise UsageError(
            f"{text}: the channel has {counted(len(files), 'build')} of it", hint=f"name one of them: {names}"
        )
    return files[0].path


def _provide(settings: Settings, recorded: RecordedBuild, request: RebuildRequest, progress: Progress) -> SourceStore:
    """The store with the package's sources; missing ones are downloaded."""
    store = SourceStore(folder=settings.sources)
    needs = recorded.sources(store)
    missing = [need for need in needs if store.find(need) is None]
    if missing and request.offline:
        raise missing_error(missing, store)
    fetch_missing(settings, missing, jobs=_DOWNLOADS_AT_ONCE, progress=progress)
    for need in needs:
        store.check(need)
    return store


def _build(
    job: BuildJob,
    places: BuildPlaces,
    destination: Path,
    channels: tuple[EnvironmentChannel, ...],
    environ: Mapping[str, str],
    progress: Progress,
) -> Path:
    cores = available_cores()
    options = BuildOptions(platform=current_platform(), max_jobs=1, cores=cores, environ=environ, tests=False)
    check_paths([job], places)
    addresses = tuple(channel.folder.as_uri() for channel in channels)

    def start(job: BuildJob, _at_once: int) -> Child:
        return start_child(
            job,
            options,
            places=places,
            channels=addresses,
            cores=cores,
            recorded=[channel.recorded for channel in channels],
        )

    def enter(package: Path) -> Path:
        path = PackageKey.of(package).path_in(destination)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(package, path)
        return path

    with BuildRun([job], start=start, enter=enter, progress=progress) as run:
        results = list(run.results(1))
    raise_failures(results)
    (result,) = results
    return cast("Path", result.package)


def _engine_note(recorded: RecordedBuild) -> tuple[str, ...]:
    """A note if another version of the engine, which may write different metadata, built the package."""
    own_version = importlib.metadata.version(_ENGINE)
    return (
        ()
        if recorded.engine == own_version
        else (f"it was built by rattler-build {recorded.engine}; this is {own_version}",)
    )
