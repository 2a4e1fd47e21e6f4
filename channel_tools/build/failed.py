# SPDX-License-Identifier: BSD-3-Clause
"""Failed builds, whose folders, environments and scripts are kept until the next build starts.

The engine records the paths in ``rattler-build-log.txt``, one line of JSON for each build, which its own
``rattler-build debug`` reads too. The engine cannot resume such a build: it starts each build with an empty work
folder, and packs only files that it has seen being installed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from channel_tools.build.model import FINISHED, RECIPE_FILE, SPEC_FILE
from channel_tools.system.document import decode_json
from channel_tools.system.errors import BuildError, UsageError, nearest_names_hint
from channel_tools.system.yamlfile import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ENGINE_LOG = Path("out", "rattler-build-log.txt")
_PACKAGES = "out/*/*.conda"
_UNTESTED = "broken"
"""The folder to which the engine moves a package whose test failed."""
_ENVIRONMENT = "build_env.sh"
_RUN = 'source "$0" && exec "$@"'


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedBuild:
    """The folder of a build, and the name of its package."""

    name: str
    folder: Path

    def is_called(self, wanted: str) -> bool:
        """Whether the package or the folder has the name ``wanted``."""
        return wanted in {self.name, self.folder.name}


@dataclass(frozen=True, kw_only=True, slots=True)
class _EngineNote:
    work_dir: str


def find_failed(works: Sequence[Path], wanted: str) -> FailedBuild:
    """The failed build in one of the folders ``works`` whose package or folder has the name ``wanted``.

    Raises UsageError if there is none or more than one. Must not be called while builds run there.
    """
    folders = [folder for work in works if work.is_dir() for folder in sorted(work.iterdir()) if folder.is_dir()]
    closed = [folder for folder in folders if not os.access(folder, os.R_OK | os.X_OK)]  # another user's
    builds = [build for folder in folders if folder not in closed for build in _kept_in(folder)]
    unfinished = [build for build in builds if not (build.folder / FINISHED).is_file()]
    failed = [build for build in unfinished if build.is_called(wanted)]
    if not failed and (ended := [build for build in builds if build.is_called(wanted)]):
        message = (
            f"{wanted}: its build did not fail: {ended[0].folder} has the package, which is not yet in the channel"
        )
        raise UsageError(message, hint="run the same build again: it adds the package to the channel")
    if not failed and (unread := [folder for folder in closed if f"{folder.name}-".startswith(f"{wanted}-")]):
        message = f"{unread[0]}: this user may not read the folder"
        raise UsageError(message, hint="ask its owner for access, or build the package as this user")
    if not failed:
        names = sorted({build.name for build in unfinished})
        hint = nearest_names_hint(wanted, names, noun="failed build") if names else None
        message = f"{wanted}: no failed build of this name is kept"
        raise UsageError(message, hint=hint or "run channel_tools build; it keeps the folder of a build that fails")
    if len(failed) > 1:
        folder_names = ", ".join(sorted(build.folder.name for build in failed))
        raise UsageError(f"{wanted}: several builds of it have failed", hint=f"name one of them: {folder_names}")
    return failed[0]


def work_folder_of(build: FailedBuild) -> Path:
    """The folder in which the build's script ran. Raises BuildError if the build failed before or after the script."""
    log = build.folder / _ENGINE_LOG
    if log.is_file() and (lines := log.read_bytes().splitlines()):
        try:
            folder = Path(decode_json(lines[-1], _EngineNote).work_dir)
        except msgspec.DecodeError as err:
            raise BuildError(f"{log}: not a log of the build engine ({err})", hint="build it again") from None
        if (folder / _ENVIRONMENT).is_file():
            return folder
    for package in sorted(build.folder.glob(_PACKAGES)):
        untested = package.parent.name == _UNTESTED
        reason = "the recipe's test of the package failed" if untested else "the package was not added to the channel"
        message = f"{build.folder}: the build script succeeded, but {reason}: {package}"
        raise BuildError(message, hint=f"see the build's log; to examine the package: channel_tools audit {package}")
    message = f"{build.folder}: the build failed before its script started; only its log can be examined"
    raise BuildError(message, hint="for a build with --engine conda-build, use conda debug")


def shell_command(work_folder: Path, command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` with the environment of the build, an interactive bash if it is empty."""
    environment = str(work_folder / _ENVIRONMENT)
    if command:
        return ["/bin/bash", "--noprofile", "--norc", "-c", _RUN, environment, *command]
    return ["/bin/bash", "--noprofile", "--rcfile", environment, "-i"]


def _kept_in(folder: Path) -> Iterator[FailedBuild]:
    if (folder / SPEC_FILE).is_file():
        recipe = read_yaml(folder / "recipe" / RECIPE_FILE).value
        package = recipe.get("package") if isinstance(recipe, dict) else None
        name = package.get("name") if isinstance(package, dict) else None
        yield FailedBuild(name=str(name), folder=folder)
