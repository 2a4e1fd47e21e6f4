# SPDX-License-Identifier: BSD-3-Clause
"""The files that pin a stack, by name, as text. conda-lock.yml is always among them: updates start from it.

The names of files for one platform have its name only if there are several platforms. Files written here say so in
their first line; they are kept up to date with the lock, and nothing else in the folder is changed. A lock can be read
in any format that locks files by hash, which is recognised by the text, not the name.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from channel_tools.conda.addresses import has_credentials, without_credentials
from channel_tools.pins.conda_lock import parse_conda_lock, render_conda_lock
from channel_tools.pins.explicit import MARK, parse_explicit, render_environment, render_explicit
from channel_tools.pins.pixi import read_pixi_lock, render_pixi_lock, render_pixi_manifest
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from channel_tools.pins.lock import Lock, PlatformLock

PinFormat = Literal["environment", "explicit", "conda-lock", "pixi"]
FORMATS: tuple[PinFormat, ...] = ("environment", "explicit", "conda-lock", "pixi")
CONDA_LOCK = "conda-lock.yml"
_OURS = "# Written by channel_tools pins"
_READABLE = "conda-lock.yml, an explicit list (@EXPLICIT) or pixi.lock"
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


def read_lock(path: Path) -> Lock:
    """The lock in ``path``. Values that its format does not have are empty (see LockedPackage).

    Raises ConfigError if it does not exist, is in none of the formats or of a newer schema, names a package twice, or
    has credentials in an address; IntegrityError if a file of ours was truncated or edited.
    """
    text = _read_text(path)
    lines = [line.strip() for line in text.splitlines()]
    if MARK in lines:
        lock = parse_explicit(text, path)
    elif any(line.startswith("environments:") for line in text.splitlines()):
        lock = read_pixi_lock(path)
    elif any(line.startswith("metadata:") for line in text.splitlines()):
        lock = parse_conda_lock(text, path)
    else:
        raise ConfigError(f"not a lock; expected {_READABLE}", path=path, hint="write one: channel_tools pins")
    for platform in lock.platforms:
        _check_packages(platform, path)
    _check_addresses(lock, path)
    return lock


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as err:
        raise ConfigError(f"byte {err.start} is not UTF-8", path=path, hint=f"expected {_READABLE}") from None
    except OSError as err:
        raise ConfigError(f"cannot be read: {err.strerror}", path=path, hint=f"name {_READABLE}") from None


def _check_packages(platform: PlatformLock, path: Path) -> None:
    counts = Counter(package.name for package in platform.packages)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        message = f"{', '.join(twice)}: more than one package of this name for {platform.platform}"
        raise ConfigError(message, path=path, hint="keep one, or write the lock again: channel_tools pins")
    other = [package for package in platform.packages if package.subdir not in {platform.platform, "noarch"}]
    if other:
        message = f"{other[0].file_name}: a package for {other[0].subdir} among those for {platform.platform}"
        raise ConfigError(message, path=path, hint="write the lock again: channel_tools pins")


def _check_addresses(lock: Lock, path: Path) -> None:
    addresses = [*lock.channels, *(package.url for one in lock.platforms for package in one.packages)]
    for address in addresses:
        if has_credentials(address):
            message = f"credentials in the address {without_credentials(address)}: a lock must not contain any"
            hint = "remove them, and give the channel's address with its token to --channel instead"
            raise ConfigError(message, path=path, hint=hint)
