# SPDX-License-Identifier: BSD-3-Clause
"""The files that pin a stack, by name, as text. conda-lock.yml is always among them: updates start from it.

The names of files for one platform have its name only if there are several platforms. Files written here say so in
their first line; they are kept up to date with the lock, and nothing else in the folder is changed. A lock can be read
in any format that locks files by hash, which is recognised by the text, not the name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

from channel_tools.pins.choice import EVERYTHING, LockChoice
from channel_tools.pins.conda_lock import parse_conda_lock, render_conda_lock
from channel_tools.pins.environment_file import DEPENDENCIES, parse_environment_file
from channel_tools.pins.explicit import MARK, parse_explicit, render_environment, render_explicit
from channel_tools.pins.md5 import complete_hashes
from channel_tools.pins.pip_constraints import render_constraints, stated_distributions
from channel_tools.pins.pixi import read_pixi_lock, render_pixi_lock, render_pixi_manifest
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import write_text_atomically
from channel_tools.system.progress import ignore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.pins.environment_file import EnvironmentFile
    from channel_tools.pins.lock import Lock
    from channel_tools.pins.md5 import LookUp
    from channel_tools.system.progress import Note

PinFormat = Literal["environment", "explicit", "conda-lock", "pixi", "pip-constraints"]
FORMATS: tuple[PinFormat, ...] = get_args(PinFormat)
CONDA_LOCK = "conda-lock.yml"
_OURS = "# Written by channel_tools pins"
_READABLE = "conda-lock.yml, an explicit list (@EXPLICIT) or pixi.lock"
_PATTERNS: Mapping[PinFormat, str] = {
    "environment": "environment*.yml",
    "explicit": "explicit*.txt",
    "pixi": "pixi.toml",
    "pip-constraints": "pip-constraints*.txt",
}
_PIXI_3 = re.compile(r"version:\s*3\s*$")
"""Format 3 of pixi.lock has the keys of conda-lock.yml, whose only version is 1."""
_KEYS: Mapping[str, PinFormat] = {
    "environments": "pixi",
    "metadata": "conda-lock",
    DEPENDENCIES: "environment",
}
"""The keys at the top of a file that only one format has."""


def pin_files(lock: Lock, formats: Collection[PinFormat]) -> dict[str, str]:
    """File names and contents, in order of name."""
    files = {CONDA_LOCK: render_conda_lock(lock)}
    for platform in lock.platforms:
        part = f"-{platform.platform}" if len(lock.platforms) > 1 else ""
        if "environment" in formats:
            files[f"environment{part}.yml"] = render_environment(lock, platform)
        if "explicit" in formats:
            files[f"explicit{part}.txt"] = render_explicit(lock, platform)
        if "pip-constraints" in formats:
            stated = stated_distributions(platform.packages)
            files[f"pip-constraints{part}.txt"] = render_constraints(stated, about=lock.stack)
    if "pixi" in formats:
        files["pixi.toml"] = render_pixi_manifest(lock)
        files["pixi.lock"] = render_pixi_lock(lock)
    return dict(sorted(files.items()))


def formats_in(folder: Path) -> set[PinFormat]:
    """The formats already written to ``folder``."""
    return {kind for kind in _PATTERNS if _written_before(folder, kind)}


def write_pin_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files that differ, the lock last, and remove those for an earlier choice of platforms.

    An interrupted run leaves the earlier conda-lock.yml, so that the next one does everything again. Raises
    DiskFullError, and UsageError if the folder cannot be written to.
    """
    try:
        _write(folder, files)
    except (PermissionError, NotADirectoryError, FileExistsError) as err:
        message = f"{err.filename or folder}: {err.strerror}; the files are written to {folder}"
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


def read_lock(
    path: Path, choice: LockChoice = EVERYTHING, *, note: Note = ignore, look_up: LookUp | None = None
) -> Lock:
    """The chosen part of the lock in ``path``. Values that its format does not have are empty (see LockedPackage).

    ``note`` gets a line for each category that is left out. With ``look_up``, an entry that has only an md5 gets its
    sha256 from the channel's index, with a note (see complete_hashes). Raises ConfigError (file, and line where the
    format has one) if it does not exist, is in none of the formats or of a newer schema, or has an entry among those
    chosen that cannot be installed (pip or source packages, no sha256, two packages of one name, credentials in an
    address); UsageError for a choice that the file does not have; IntegrityError if a file of ours was truncated or
    edited; and as ``look_up`` does.
    """
    text = read_text(path)
    lock = _read(path, text, choice, note)
    empty = [platform.platform for platform in lock.platforms if not platform.packages]
    if len(empty) == len(lock.platforms) or (empty and choice.platforms):
        message = f"it names no packages{' for ' if empty else ''}{', '.join(empty)}"
        raise ConfigError(message, path=path, hint="lock again: the file may be cut off, or have only other categories")
    return complete_hashes(lock, path, text, look_up=look_up, note=note)


def _read(path: Path, text: str, choice: LockChoice, note: Note) -> Lock:
    kind = format_of(text)
    if kind == "explicit":
        return parse_explicit(text, path, choice)
    if kind == "pixi":
        return read_pixi_lock(path, choice)
    if kind == "conda-lock":
        return parse_conda_lock(text, path, choice, note=note)
    if kind == "environment":
        message = f"an environment.yml, which has no hashes; expected {_READABLE}"
        raise ConfigError(message, path=path, hint="lock it first: conda-lock, or pixi")
    raise ConfigError(f"not a lock; expected {_READABLE}", path=path, hint="write one: channel_tools pins")


def read_pins(
    path: Path, choice: LockChoice = EVERYTHING, *, note: Note = ignore, look_up: LookUp | None = None
) -> Lock | EnvironmentFile:
    """Like read_lock, and an environment.yml, which has no hashes and must be solved. Raises as both readers do."""
    text = read_text(path)
    if format_of(text) == "environment":
        return parse_environment_file(text, path, note=note)
    return read_lock(path, choice, note=note, look_up=look_up)


def format_of(text: str) -> PinFormat | None:
    """The format of a file, by its text; None if it is none of those that are read."""
    lines = text.splitlines()
    if any(line.strip() == MARK for line in lines):
        return "explicit"
    if any(_PIXI_3.match(line) for line in lines):
        return "pixi"
    for key, kind in _KEYS.items():
        if any(line.startswith(f"{key}:") for line in lines):
            return kind
    return None


def read_text(path: Path) -> str:
    """The text of a file of pins. Raises ConfigError if it cannot be read, or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        raise ConfigError(f"byte {err.start} is not UTF-8", path=path, hint=f"expected {_READABLE}") from None
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path, hint=f"name {_READABLE}") from None
