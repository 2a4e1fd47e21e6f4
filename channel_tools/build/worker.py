# SPDX-License-Identifier: BSD-3-Clause
"""A build's worker process, from both sides: starting it for a job, what runs in it, and evaluating its result.

Each build is a process of its own (``python -m channel_tools.build.worker``): none sees another's memory or
environment, and one that crashes takes only itself down.

Each build has its own folder under ``work``, marked by its spec.json so that only such folders are ever removed, and a
log; the latest log and the one before are kept. The recipe is copied there, since every tool can handle the path of
``work``, but perhaps not that of the rendered recipes. The process builds one package, writes the result file, leaves
no process running, and ends by os._exit after flushing: runtime threads of the engine sometimes crash the
interpreter's exit.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.build.environment import child_environment
from channel_tools.build.failures import failure_of, not_the_expected
from channel_tools.build.model import (
    SPEC_FILE,
    BuildJob,
    BuildPlaces,
    BuildUsage,
    WorkerResult,
    WorkerSpec,
    decode,
    encode,
)
from channel_tools.build.script_output import LEFT_RUNNING, put_before_path
from channel_tools.build.special_files import StuckEngine
from channel_tools.conda.package import split_stem
from channel_tools.system.errors import BuildError, ChannelToolsError, ConfigError, UsageError
from channel_tools.system.files import disk_full_reported, remove_tree, write_bytes_atomically
from channel_tools.system.processes import start_command
from channel_tools.system.workers import SIGNALLED, Consumption, supervise

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection, Iterator, Sequence

    from channel_tools.build.model import BuildOptions

_RESULT = "result.json"
_USAGE = "usage.json"
_OUTPUT = "out"
_INTERPRETER = "interpreter"
_PREFIX_BYTES = 255
_ENGINE_FOLDERS_BYTES = len("/bld") + len("/rattler-build_") + len("/host_env")
"""Of the engine's own folders above a prefix; in parts, since the audit searches packages for their name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A build that is running."""

    job: BuildJob
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    cache: Path
    started_s: float

    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self.started_s


def start_child(
    job: BuildJob,
    options: BuildOptions,
    *,
    places: BuildPlaces,
    channels: Sequence[str],
    cores: int,
    recorded: Sequence[str] | None = None,
) -> Child:
    """Start the worker process of ``job`` in a process group of its own; its output goes to the job's log.

    ``cores`` is its share of the cores of ``options``. The package names the ``channels`` that it was built from, or
    the names in ``recorded`` instead.
    """
    folder = places.work / job.folder_name
    with disk_full_reported(places.work):
        temporary, recipe = folder / "tmp", folder / "recipe"
        temporary.mkdir(parents=True)
        spec = WorkerSpec(
            recipe_folder=recipe.absolute(),
            output=(folder / _OUTPUT).absolute(),
            result_file=(folder / _RESULT).absolute(),
            channels=(channels[0], *(view.as_uri() for view in job.views)) if job.views else tuple(channels),
            recorded_channels=tuple(channels if recorded is None else recorded),
            platform=options.platform,
            error_prefix_in_binary=job.error_prefix_in_binary,
            compression_threads=cores,
            compiler_cache=options.compiler_cache,
            tests=options.tests,
        )
        write_bytes_atomically(folder / SPEC_FILE, encode(spec), durable=False)  # only this run reads it
        shutil.copytree(job.recipe_folder, recipe, symlinks=True)
        places.logs.mkdir(parents=True, exist_ok=True)
        log = places.logs / f"{job.stem}.log"
        if log.exists():
            log.replace(places.logs / f"{job.stem}.previous.log")
        environment = child_environment(
            options.environ, cores=cores, temporary=temporary.absolute(), cache=places.cache
        )
        with log.open("wb") as stream:
            own = [str((folder / SPEC_FILE).absolute()), str(os.getpid())]
            command = [sys.executable, "-P", "-m", "channel_tools.build.worker", *own]
            process = start_command(command, env=environment, stdout=stream.fileno(), stderr=stream.fileno())
    return Child(job=job, process=process, folder=folder, log=log, cache=places.cache, started_s=time.monotonic())


def check_paths(jobs: Sequence[BuildJob], places: BuildPlaces) -> None:
    """Raise ConfigError for a job whose prefix would be longer than the 255 bytes that a package's placeholder has.

    py-rattler-build 0.73 panics there.
    """
    for job in jobs:
        name = split_stem(job.stem)[0]
        output = (places.work / job.folder_name / _OUTPUT).absolute()
        excess = len(os.fsencode(output)) + _ENGINE_FOLDERS_BYTES + len(name) - _PREFIX_BYTES
        if excess > 0:
            message = (
                f"{job.stem}: its prefix in {output} would be {excess} bytes longer than the {_PREFIX_BYTES} allowed"
            )
            raise ConfigError(message, hint="shorten the package's name")


def package_of(child: Child) -> Path:
    """The package that a build made, in its work folder. Raises the error of a build that made none."""
    job = child.job
    result = _read_result(child)
    if result.failure is not None:
        written = [folder for folder in (child.folder, child.cache) if folder.is_dir()]
        raise failure_of(job, result, child.log, seconds=child.seconds(), written=written)
    if [(package.parent.name, package.name) for package in result.packages] != [(job.subdir, job.file_name)]:
        raise not_the_expected(job, result.packages, child.log)
    return result.packages[0]


def notes_of(child: Child) -> tuple[str, ...]:
    """What a user should know about the package that a build made, each with its name."""
    return tuple(f"{child.job.stem}: {note}" for note in _read_result(child).notes)


def was_killed(child: Child) -> bool:
    """Whether a signal ended the build, which then says nothing about the recipe."""
    status = child.process.wait()
    return status < 0 or status > SIGNALLED


def usage_of(child: Child) -> BuildUsage | None:
    """What a build used; None for one that was killed."""
    try:
        return decode((child.folder / _USAGE).read_bytes(), BuildUsage)
    except FileNotFoundError:
        return None


def clear_work(work: Path, *, needed: Collection[str] = ()) -> None:
    """Remove the folders of earlier builds, failed or killed. Must not be called while builds run.

    ``needed`` and the errors are those of left_where_denied.
    """
    for folder in sorted(work.iterdir()) if work.is_dir() else ():
        with left_where_denied(folder, needed):
            if (folder / SPEC_FILE).is_file():
                remove_tree(folder)


@contextlib.contextmanager
def left_where_denied(folder: Path, needed: Collection[str]) -> Iterator[None]:
    """Ignore that the block may not remove ``folder``, which belongs to another user.

    Raises UsageError if a build needs the folder: its name is among ``needed``.
    """
    try:
        yield
    except PermissionError:
        if folder.name not in needed:
            return
        number = folder.lstat().st_uid
        try:
            owner = pwd.getpwuid(number).pw_name
        except KeyError:
            owner = f"user {number}"
        message = f"{folder}: left by another build, and cannot be removed: permission denied"
        raise UsageError(message, hint=f"remove it as {owner}, or choose another folder with --output") from None


def forget(child: Child) -> None:
    """Remove the work folder of a build that succeeded."""
    shutil.rmtree(child.folder, ignore_errors=True)  # the next run removes what is left


def _read_result(child: Child) -> WorkerResult:
    status = child.process.wait()
    try:
        if status == 0:
            return decode((child.folder / _RESULT).read_bytes(), WorkerResult)
    except (FileNotFoundError, msgspec.DecodeError) as err:
        return WorkerResult(failure="other", message=f"the worker left no result ({err})")
    if was_killed(child):
        return WorkerResult(failure="killed", message=f"signal {-status if status < 0 else status - SIGNALLED}")
    return WorkerResult(failure="other", message=f"the worker ended with exit status {status}")


def main(spec_file: Path, parent: int) -> int:
    """Build what ``spec_file`` says; returns 0 if the result file was written, whatever the result is.

    Ends its build and returns when ``parent``, the process that started this one, ends.
    """
    spec = decode(spec_file.read_bytes(), WorkerSpec)
    consumed, started_s = Consumption(), time.monotonic()
    engine = StuckEngine(spec.output)
    own = os.getpid()
    try:
        status = supervise(
            lambda: _finish(spec, _run(spec)), parent_pid=parent, consumed=consumed, check=lambda: engine.check(own)
        )
    except BuildError as err:
        print(f"error: {err.message}", flush=True)  # noqa: T201 - the worker's output is the build's log
        return _finish(spec, WorkerResult(failure="file", message=err.message))
    if status == 0:
        usage = BuildUsage(
            seconds=time.monotonic() - started_s,
            cpu_s=consumed.cpu_s,
            memory_bytes=consumed.memory_bytes,
            cores=spec.compression_threads,
        )
        write_bytes_atomically(spec_file.with_name(_USAGE), encode(usage), durable=False)
    return status


def _finish(spec: WorkerSpec, result: WorkerResult) -> int:
    result = _settled(result, spec)
    write_bytes_atomically(spec.result_file, encode(result), durable=False)
    sys.stdout.flush()
    sys.stderr.flush()
    return 0


def _settled(result: WorkerResult, spec: WorkerSpec) -> WorkerResult:
    from channel_tools.build.settle import settle_built  # noqa: PLC0415 - as in _run

    notes = [*result.notes, *_left_running(spec)]
    try:
        for package in result.packages:
            renamed = dict(zip(spec.channels, spec.recorded_channels or spec.channels, strict=True))
            threads = spec.compression_threads
            notes += settle_built(
                package,
                spec.recipe_folder,
                threads=threads,
                renamed=renamed,
                work=spec.output.parent,
            )
    except ChannelToolsError as err:
        return WorkerResult(failure="other", message=err.message)
    return replace(result, notes=tuple(notes))


def _left_running(spec: WorkerSpec) -> list[str]:
    """What scripts left running, a note for each."""
    file = spec.output.parent / _INTERPRETER / LEFT_RUNNING
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def _run(spec: WorkerSpec) -> WorkerResult:
    os.environ["PATH"] = put_before_path(spec.output.parent / _INTERPRETER, os.environ["PATH"])
    # the processes that start and supervise builds do without what is slow to import
    from channel_tools.build.engine import run_engine  # noqa: PLC0415

    return run_engine(spec, end=lambda result: os._exit(_finish(spec, result)))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
