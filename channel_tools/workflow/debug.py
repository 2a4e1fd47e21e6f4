# SPDX-License-Identifier: BSD-3-Clause
"""Runs a shell, or a command, in a failed build, whose folder is kept until the next build starts.

The engine records in ``rattler-build-log.txt``, one line of JSON for each build, where a script runs, and writes its
environment there. Its own DebugSession installs and unpacks everything anew, and hours of compilation would be missing.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.build.environment import shell_environment
from channel_tools.build.model import RECIPE_FILE, SPEC_FILE
from channel_tools.build.node import lock_of
from channel_tools.build.schedule import locked_builds
from channel_tools.system.document import decode_json
from channel_tools.system.errors import BuildError, UsageError, nearest_names_hint
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.processes import run_in_foreground
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from channel_tools.system.settings import Settings

_ENGINE_LOG = Path("out", "rattler-build-log.txt")
_PACKAGES = "out/*/*.conda"
_UNTESTED = "broken"
"""The folder to which the engine moves a package whose test failed."""
_ENVIRONMENT = "build_env.sh"
_RUN = 'source "$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True, slots=True)
class _EngineNote:
    work_dir: str


def debug_build(
    settings: Settings,
    package: str,
    command: Sequence[str],
    *,
    cores: int,
    environ: Mapping[str, str],
    on_found: Callable[[Path], None],
) -> int:
    """Run ``command``, or a shell, in the work folder and environment of a failed build; returns its exit status.

    No build can start meanwhile. ``on_found`` is called with the folder first. Raises the errors of find_failed and
    work_folder_of, and ChannelError while a build runs.
    """
    nodes = settings.nodes
    with contextlib.ExitStack() as locks:
        locks.enter_context(locked_builds(settings.work))
        build = find_failed([settings.work, nodes], package)
        if build.parent == nodes:  # a job that has outlived its driver may be building there
            locks.enter_context(exclusive_lock(lock_of(build), resource=f"the build folder {build}"))
        folder = work_folder_of(build)
        on_found(folder)
        environment = shell_environment(build, environ, cores=cores, cache=settings.cache)
        return run_in_foreground(shell_command(folder, command), cwd=folder, env=environment)


def find_failed(works: Sequence[Path], wanted: str) -> Path:
    """The folder of the failed build in one of ``works`` whose package or folder has the name ``wanted``.

    Raises UsageError if there is none or more than one. Must not be called while builds run there.
    """
    folders = [folder for work in works if work.is_dir() for folder in sorted(work.iterdir())]
    readable = [folder for folder in folders if folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)]
    names = {folder: _package_of(folder) for folder in readable if (folder / SPEC_FILE).is_file()}
    failed = [folder for folder, name in names.items() if wanted in {name, folder.name}]
    if not failed:
        hint = nearest_names_hint(wanted, sorted({*names.values()}), noun="failed build") if names else None
        message = f"{wanted}: no failed build of this name is kept"
        raise UsageError(message, hint=hint or "run channel_tools build; it keeps the folder of a build that fails")
    if len(failed) > 1:
        folder_names = ", ".join(sorted(folder.name for folder in failed))
        raise UsageError(f"{wanted}: several builds of it have failed", hint=f"name one of them: {folder_names}")
    return failed[0]


def _package_of(folder: Path) -> str:
    recipe = read_yaml(folder / "recipe" / RECIPE_FILE).value
    package = recipe.get("package") if isinstance(recipe, dict) else None
    return str(package.get("name")) if isinstance(package, dict) else ""


def work_folder_of(build: Path) -> Path:
    """The folder in which the build's script ran. Raises BuildError if the build failed before or after the script."""
    log = build / _ENGINE_LOG
    if log.is_file() and (lines := log.read_bytes().splitlines()):
        try:
            folder = Path(decode_json(lines[-1], _EngineNote).work_dir)
        except msgspec.DecodeError as err:
            raise BuildError(f"{log}: not a log of the build engine ({err})", hint="build it again") from None
        if (folder / _ENVIRONMENT).is_file():
            return folder
    for package in sorted(build.glob(_PACKAGES)):
        untested = package.parent.name == _UNTESTED
        reason = "the recipe's test of the package failed" if untested else "the package was not added to the channel"
        message = f"{build}: the build script succeeded, but {reason}: {package}"
        raise BuildError(message, hint=f"see the build's log; to examine the package: channel_tools audit {package}")
    message = f"{build}: the build failed before its script started; only its log can be examined"
    raise BuildError(message, hint="see the build's log")


def shell_command(work_folder: Path, command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` with the environment of the build, an interactive bash if it is empty."""
    environment = str(work_folder / _ENVIRONMENT)
    if command:
        return ["/bin/bash", "--noprofile", "--norc", "-c", _RUN, environment, *command]
    return ["/bin/bash", "--noprofile", "--rcfile", environment, "-i"]
