# SPDX-License-Identifier: BSD-3-Clause
"""Handles what py-rattler 0.28 does not report about files that it links.

Truncated cached files, clashes, scripts that are not run, and files of a package that was being linked when a run was
interrupted.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from channel_tools.conda.contents import read_path_rows
from channel_tools.conda.link_scripts import link_script_paths
from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rattler import RepoDataRecord

_CLOBBERS = "__clobbers__"
"""The folder to which rattler moves files of a package that clash with another's, by the package's name."""
_SHOWN = 5
_NOARCH_PLACES = {"site-packages": "lib/python*/site-packages", "python-scripts": "bin"}
"""Where the folders of a package of Python modules are linked to."""


def cached_name(record: RepoDataRecord) -> str:
    """``NAME-VERSION-BUILD``, the folder of a package in the cache."""
    return f"{record.name.normalized}-{record.version}-{record.build}"


def has_cached_file_of_other_size(records: Iterable[RepoDataRecord], package_cache: Path) -> bool:
    """Whether a file of the unpacked packages in the cache does not have the size in its package's paths.json.

    A full disk or a program that wrote into an environment leaves such files; rattler only checks that they exist.
    """
    return any(_has_file_of_other_size(package_cache / cached_name(record)) for record in records)


def _has_file_of_other_size(folder: Path) -> bool:
    try:
        rows = read_path_rows((folder / "info/paths.json").read_bytes(), folder)
        sizes = {row.path: row.size_in_bytes for row in rows.values() if row.path_type == "hardlink"}
        return any(size is not None and (folder / path).stat().st_size != size for path, size in sizes.items())
    except (OSError, IntegrityError):  # missing or not readable: rattler unpacks it again
        return False


def clashing_files(prefix: Path) -> str:
    """Describe files that are not in the environment, since other packages have files of that name; "" for none."""
    folder = prefix / _CLOBBERS
    found = [path.relative_to(folder).parts for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    lost = sorted(f"{'/'.join(file)} of {package}" for package, *file in found)
    if not lost:
        return ""
    shown = ", ".join(lost[:_SHOWN]) + (f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else "")
    return f"{prefix}: packages have files of the same name; only one of each was installed, left out: {shown}"


def scripts_not_run(prefix: Path, names: Iterable[str], actions: Iterable[str], *, windows: bool) -> str:
    """Describe the link scripts in the prefix of the packages ``names`` that a client with them would run.

    They are not run here: py-rattler 0.28 runs post-link and pre-unlink scripts only, and does not report whether one
    failed. Returns "" if there are none.
    """
    wanted = tuple(actions)
    found = [
        path
        for name in sorted(names)
        for path in link_script_paths(name, wanted, windows=windows)
        if (prefix / path).is_file()
    ]
    if not found:
        return ""
    shown = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
    return f"{prefix}: packages have scripts that conda runs and this command does not: {shown}"


def remove_unrecorded(prefix: Path, names: Iterable[str], package_cache: Path) -> None:
    """Remove the files of packages (by cached_name) that were linked into ``prefix`` and have no record; nothing else.

    The files of a package that is no longer in the cache are unknown: they stay.
    """
    home = prefix.resolve()
    is_inside = functools.cache(lambda folder: folder.resolve().is_relative_to(home))
    for name in names:
        for path in _linked(prefix, package_cache / name):
            if (path.is_file() or path.is_symlink()) and is_inside(path.parent):
                path.unlink()
                _remove_empty(path.parent, prefix)


def _linked(prefix: Path, package: Path) -> Iterator[Path]:
    """Where the files of an unpacked package are in a prefix, and the byte code that Python compiled from them."""
    try:
        rows = read_path_rows((package / "info/paths.json").read_bytes(), package)
    except (OSError, IntegrityError):
        return
    for row in rows:
        first, _, rest = row.partition("/")
        places = prefix.glob(_NOARCH_PLACES[first]) if first in _NOARCH_PLACES else [prefix / first]
        for path in [place / rest for place in places]:
            if path.suffix == ".py":
                yield from (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
            yield path


def _remove_empty(folder: Path, prefix: Path) -> None:
    """Remove the folder, and those above it below the prefix, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != prefix:
            folder.rmdir()
            folder = folder.parent
