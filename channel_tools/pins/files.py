# SPDX-License-Identifier: BSD-3-Clause
"""The files that pin a stack, by name, as text. conda-lock.yml is always among them: updates start from it.

Files for one platform have its name in theirs only where there are several platforms. Files that were written here say
so in their first line; such files stay in step with the lock, and nothing else in the folder is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from channel_tools.errors import UsageError
from channel_tools.files import write_text_atomically
from channel_tools.pins.conda_lock import render_conda_lock
from channel_tools.pins.environment_file import render_environment
from channel_tools.pins.explicit import render_explicit
from channel_tools.pins.pixi import render_pixi_lock, render_pixi_manifest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.pins.model import Lock

PinFormat = Literal["environment", "explicit", "conda-lock", "pixi"]
FORMATS: tuple[PinFormat, ...] = ("environment", "explicit", "conda-lock", "pixi")
CONDA_LOCK = "conda-lock.yml"
_OURS = "# Written by channel_tools pins"
_PATTERNS: Mapping[PinFormat, str] = {
    "environment": "environment*.yml",
    "explicit": "explicit*.txt",
    "pixi": "pixi.toml",
}


def pin_files(lock: Lock, formats: Collection[PinFormat]) -> dict[str, str]:
    """File names and contents, in order of name."""
    files = {CONDA_LOCK: render_conda_lock(lock)}
    for platform in lock.platforms:
        part = f"-{platform.platform}" if len(lock.platforms) > 1 else ""
        if "environment" in formats:
            files[f"environment{part}.yml"] = render_environment(lock, platform)
        if "explicit" in formats:
            files[f"explicit{part}.txt"] = render_explicit(lock, platform)
    if "pixi" in formats:
        files["pixi.toml"] = render_pixi_manifest(lock)
        files["pixi.lock"] = render_pixi_lock(lock)
    return dict(sorted(files.items()))


def formats_in(folder: Path) -> set[PinFormat]:
    """The formats that were written to ``folder`` before."""
    return {kind for kind in _PATTERNS if _written_before(folder, kind)}


def write_pin_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write what differs, the lock last, and remove files that were written for a former choice of platforms.

    An interrupted run leaves the former conda-lock.yml, so that the next one does all again. Raises DiskFullError, and
    UsageError where the folder cannot be written to.
    """
    try:
        _write(folder, files)
    except (PermissionError, NotADirectoryError, FileExistsError) as err:
        message = f"{err.filename or folder}: {err.strerror}; the files go to {folder}"
        raise UsageError(message, hint="give a folder that you can write to: -o FOLDER") from err


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name in sorted(files, key=lambda name: (name == CONDA_LOCK, name)):
        path = folder / name
        if not path.is_file() or path.read_bytes() != files[name].encode():
            write_text_atomically(path, files[name])
    for kind in _PATTERNS:
        for path in _written_before(folder, kind):
            if path.name not in files:
                path.unlink()


def _written_before(folder: Path, kind: PinFormat) -> list[Path]:
    return [path for path in sorted(folder.glob(_PATTERNS[kind])) if _is_ours(path)]


def _is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as stream:
        return stream.readline().startswith(_OURS)
