# SPDX-License-Identifier: BSD-3-Clause
"""``--from-failed``: continues a build in the work folder of the one that failed, with what was compiled there.

The engine starts each build with an empty folder. So the failed build's work folder is set aside; the engine unpacks
and patches the sources again and installs the environments; and before the script starts, the old work folder replaces
the new one, provided that every file that the engine unpacked is the same in both. A package is therefore made from
the recipe's sources or not at all. Only builds of the same rendered recipe are continued.

Changes made in ``channel_tools debug`` are not the recipe's either: it marks the folder that it opens, and a folder in
which anything has changed since is rejected.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.build.failed import FailedBuild, work_folder_of
from channel_tools.build.model import RECIPE_FILE, SPEC_FILE
from channel_tools.system.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from channel_tools.build.model import BuildJob, BuildTools

KEPT = "kept"
"""The work folder of the failed build, in the folder of the build that continues it."""
_OPENED = "opened"
_SOURCE_RECORD = ".source_info.json"
"""The engine's record of a recipe's sources, in the work folder; the order of the keys in it changes between builds
(rattler-build's source cache keeps them in a HashMap)."""
_NAMED_AT_MOST = 5
_HINT = "run the same command without --from-failed to start from the beginning"


def resumable_builds(
    work: Path, jobs: Iterable[BuildJob], tools: BuildTools, *, note: Callable[[str], None]
) -> list[BuildJob]:
    """Those of ``jobs`` whose failed builds are kept in ``work`` and continued, each reported to ``note``.

    None if ``tools`` say that all builds start from the beginning. Must not be called while builds run there. Raises
    BuildError for a folder that was changed after ``channel_tools debug`` had opened it.
    """
    if not tools.from_failed:
        return []
    resumable = [job for job in jobs if can_resume(work / job.folder_name, job, tools)]
    for job in resumable:
        _check_unchanged(work / job.folder_name, job)
        note(f"{job.stem}: continues where it failed")
    if not resumable:
        note("no failed build of these packages is kept: all of them start from the beginning")
    return resumable


def can_resume(folder: Path, job: BuildJob, tools: BuildTools) -> bool:
    """Whether a failed build is continued there: one of the same recipe and variant, whose script had started."""
    if not tools.from_failed:
        return False
    recipe, wanted = folder / "recipe" / RECIPE_FILE, job.recipe_folder / RECIPE_FILE
    if not (recipe.is_file() and recipe.read_bytes() == wanted.read_bytes()):
        return False
    return (folder / KEPT).is_dir() or _work_folder(folder, job) is not None


def set_aside(folder: Path, job: BuildJob) -> Path:
    """Keep only the work folder of a failed build that can_resume accepts; returns where it is."""
    kept_folder = folder / KEPT
    # one that is kept already has what was compiled: the build that should have continued it did not get to its script
    if not kept_folder.is_dir() and (work := _work_folder(folder, job)) is not None:
        work.rename(kept_folder)
    for path in [*folder.iterdir()]:
        if path.name not in {KEPT, SPEC_FILE, "recipe"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return kept_folder


def take_over(kept_folder: Path, fresh: Path) -> None:
    """Replace ``fresh``, which has the recipe's sources, by the work folder ``kept_folder``.

    Raises BuildError and changes nothing if a file of ``fresh`` is missing in ``kept_folder`` or differs there.
    """
    if differing := [*_differing(fresh, kept_folder)]:
        more = len(differing) - _NAMED_AT_MOST
        names = ", ".join(differing[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
        raise BuildError(f"sources in the kept folder are no longer those of the recipe: {names}")
    shutil.rmtree(fresh)
    kept_folder.rename(fresh)


def mark_opened(folder: Path) -> None:
    """Record that a user has opened the folder of a failed build: later changes may be the user's."""
    with contextlib.suppress(FileExistsError):
        (folder / _OPENED).touch(exist_ok=False)


def _work_folder(folder: Path, job: BuildJob) -> Path | None:
    try:
        return work_folder_of(FailedBuild(name=job.stem, folder=folder))
    except BuildError:
        return None


def _check_unchanged(folder: Path, job: BuildJob) -> None:
    mark, work = folder / _OPENED, _work_folder(folder, job)
    if work is None or not mark.exists():
        return
    opened_ns = mark.stat().st_ctime_ns  # by the same file system's clock, and nobody can set it
    for path in _below(work):
        if path.lstat().st_ctime_ns > opened_ns:
            message = f"{job.stem}: {path} was changed after channel_tools debug had opened the folder"
            raise BuildError(f"{message}, so a package made there would not be the recipe's", hint=_HINT)


def _below(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def _differing(fresh: Path, kept_folder: Path) -> Iterator[str]:
    """Paths in ``fresh`` that differ in ``kept_folder``, sorted."""
    for path in sorted(_below(fresh)):
        within = path.relative_to(fresh)
        if not _is_same(path, kept_folder / within):
            yield str(within)


def _is_same(path: Path, other: Path) -> bool:
    if path.is_symlink() or other.is_symlink():
        return path.is_symlink() and other.is_symlink() and path.readlink() == other.readlink()
    if path.is_dir() or other.is_dir():
        return path.is_dir() and other.is_dir()
    if path.name == _SOURCE_RECORD and other.is_file():
        return _is_same_record(path, other)
    executable = os.access(path, os.X_OK)
    return other.is_file() and executable == os.access(other, os.X_OK) and filecmp.cmp(path, other, shallow=False)


def _is_same_record(path: Path, other: Path) -> bool:
    try:
        return bool(json.loads(path.read_bytes()) == json.loads(other.read_bytes()))
    except ValueError:
        return False
