# SPDX-License-Identifier: BSD-3-Clause
"""Handles what py-rattler 0.28 does not report about files that it links.

Clashes, scripts that are not run, links of several packages that together lead outside, records that name files
outside, and files of a package that was being linked when a run was interrupted.

Where two packages have a file of the same name, the environment has one of them, as with conda. Where one's file or
link is the other's folder, py-rattler 0.28 leaves out all that the other has below it: that is refused beforehand.
"""

from __future__ import annotations

import contextlib
import filecmp
import functools
import os
from typing import TYPE_CHECKING

from channel_tools.conda.contents import METADATA_BYTES, read_path_rows
from channel_tools.conda.link_scripts import link_script_paths
from channel_tools.conda.metadata import is_inner_path
from channel_tools.environments.package_cache import cached_name
from channel_tools.system.archives import UnsafeMemberError, check_links
from channel_tools.system.errors import FileAccessError, IntegrityError, UsageError
from channel_tools.system.files import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rattler import PrefixRecord, RepoDataRecord

    from channel_tools.environments.package_cache import Unpacked

_CLOBBERS = "__clobbers__"
"""The folder to which rattler moves files of a package that clash with another's, by the package's name."""
_SHOWN = 5
_OTHER_BUILDS = "choose other builds of them, or another channel"
_NOARCH_PLACES = {"site-packages": "lib/python*/site-packages", "python-scripts": "bin"}
"""Where the folders of a package of Python modules are linked to."""


def check_recorded_paths(prefix: Path, installed: Iterable[PrefixRecord]) -> None:
    """Raise IntegrityError if a record in conda-meta names a file that is not in the environment.

    rattler removes the files of a package that leaves, whatever their paths; earlier versions of this program, and
    other clients, installed such packages.
    """
    home = prefix.resolve()
    is_inside = functools.cache(lambda folder: (prefix / folder).resolve().is_relative_to(home))
    for record in installed:
        for name in {*record.files, *(str(row.relative_path) for row in record.paths_data.paths)}:
            folder = str(name).rpartition("/")[0]
            if not is_inner_path(str(name)) or not is_inside(folder):
                message = f"{prefix}: the record of {cached_name(record)} names {str(name)!r}, which is outside"
                hint = (
                    f"remove that line from {prefix}/conda-meta/{cached_name(record)}.json, or make another environment"
                )
                raise IntegrityError(message, hint=hint)


def check_packages_together(
    prefix: Path,
    staying: Iterable[PrefixRecord],
    fresh: Sequence[RepoDataRecord],
    unpacked: Mapping[str, Unpacked],
    *,
    of_packages: Collection[str] | None,
) -> None:
    """Raise IntegrityError if packages, each harmless, cannot be in one environment.

    Their links may together lead out of it, and a file or link of one may have the name of a folder of another.
    A file of the user's may not be in the place of theirs: what is not among the paths ``of_packages``, None if that is
    not known. ``staying`` are installed and stay, ``fresh`` are to be linked from what is ``unpacked``, by cached_name.
    """
    links = {
        str(row.relative_path): str((prefix / row.relative_path).readlink())
        for record in staying
        for row in record.paths_data.paths
        if row.path_type.softlink and (prefix / row.relative_path).is_symlink()
    }
    folders: set[str] = set()
    packages: dict[str, str] = {}
    coming: set[str] = set()
    for installed in staying:
        rows = installed.paths_data.paths
        packages |= dict.fromkeys((str(row.relative_path) for row in rows), cached_name(installed))
    modules = _modules_folder([*fresh, *staying])
    for record in fresh:
        package = unpacked[cached_name(record)]
        linked_path = functools.partial(_place_of, modules=modules if record.noarch.python else None)
        links |= {linked_path(name): target for name, target in package.links.items() if not name.startswith("info/")}
        folders |= {linked_path(name) for name in package.folders if name.partition("/")[0] != "info"}
        linked = {linked_path(name) for name in package.files if name.partition("/")[0] != "info"}
        packages |= dict.fromkeys(linked, cached_name(record))
        coming |= linked
    _check_folders(prefix, packages)
    if of_packages is not None:
        _check_users_files(prefix, coming.difference(of_packages))
    try:
        check_links(links, folders)
    except UnsafeMemberError as err:
        names = ", ".join(sorted(cached_name(record) for record in fresh if unpacked[cached_name(record)].links))
        message = f"{prefix}: these packages cannot be installed together: {err} (packages with links: {names})"
        raise IntegrityError(message, hint=_OTHER_BUILDS) from None


def _check_folders(prefix: Path, packages: Mapping[str, str]) -> None:
    """Raise IntegrityError if a path is a folder, too; ``packages`` maps the paths of files and links to packages."""
    folders: dict[str, str] = {}
    for path, package in packages.items():
        while (path := path.rpartition("/")[0]) and path not in folders:
            folders[path] = package
    if both := sorted(packages.keys() & folders.keys()):
        listed = "; ".join(
            f"{path!r} is a file of {packages[path]}, a folder of {folders[path]}" for path in both[:_SHOWN]
        )
        message = f"{prefix}: these packages cannot be installed together: {listed}"
        raise IntegrityError(message, hint=_OTHER_BUILDS)


def _check_users_files(prefix: Path, coming: Iterable[str]) -> None:
    """Raise UsageError if something else is where the files and folders of packages that are ``coming`` would be."""
    taken, seen = set(), set[str]()
    for path in coming:
        if os.path.lexists(prefix / path):
            taken.add(path)
        while (path := path.rpartition("/")[0]) and path not in seen:
            seen.add(path)
            if os.path.lexists(prefix / path) and not (prefix / path).is_dir():
                taken.add(path)
    if taken:
        listed = ", ".join(sorted(taken)[:_SHOWN]) + (f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else "")
        message = f"{prefix}: packages would replace files that are of no package: {listed}; nothing was changed"
        raise UsageError(message, hint="move these away, or remove what brought them (pip uninstall), and run it again")


def _modules_folder(records: Iterable[RepoDataRecord]) -> str:
    """Where the records' Python has its modules; a place as deep if there is none."""
    for record in records:
        if record.name.normalized == "python":
            minor = ".".join(str(record.version).split(".")[:2])
            return record.python_site_packages_path or f"lib/python{minor}/site-packages"
    return "lib/python/site-packages"


def _place_of(path: str, *, modules: str | None) -> str:
    """Where a package's path is in an environment; ``modules`` is the folder for those of a package of modules."""
    first, _, below = path.partition("/")
    folder = {"site-packages": modules, "python-scripts": "bin"}.get(first) if modules else None
    return path if folder is None else f"{folder}/{below}".rstrip("/")


def clashing_files(prefix: Path) -> tuple[str, ...]:
    """``FILE of PACKAGE`` for files that are not in the environment, since another package has others of that name."""
    folder = prefix / _CLOBBERS
    lost = []
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            package, *file = path.relative_to(folder).parts
            if not _is_same(path, prefix.joinpath(*file)):
                lost.append(f"{'/'.join(file)} of {package}")
    return tuple(sorted(lost))


def _is_same(file: Path, other: Path) -> bool:
    if file.is_symlink() or other.is_symlink():
        return file.is_symlink() and other.is_symlink() and file.readlink() == other.readlink()
    return other.is_file() and filecmp.cmp(file, other, shallow=False)


def scripts_not_run(prefix: Path, names: Iterable[str], actions: Iterable[str], *, windows: bool) -> str:
    """Describe the link scripts in the prefix of the packages ``names`` that a client with them would run.

    They are not run here: py-rattler 0.28 runs post-link and pre-unlink scripts only, and does not report whether one
    failed. Returns "" if there are none.
    """
    stages = tuple(actions)
    scripts = [
        path
        for name in sorted(names)
        for path in link_script_paths(name, stages, windows=windows)
        if (prefix / path).is_file()
    ]
    if not scripts:
        return ""
    listed = ", ".join(scripts[:_SHOWN]) + (f" and {len(scripts) - _SHOWN} more" if len(scripts) > _SHOWN else "")
    return f"{prefix}: packages have scripts that conda runs and this command does not: {listed}"


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
        rows = read_path_rows(
            read_regular(package / "info/paths.json", limit_bytes=METADATA_BYTES["paths.json"]), package
        )
    except (OSError, FileAccessError, IntegrityError):
        return
    for row in rows:
        first, _, below = row.partition("/")
        folders = prefix.glob(_NOARCH_PLACES[first]) if first in _NOARCH_PLACES else [prefix / first]
        for path in [folder / below for folder in folders]:
            if path.suffix == ".py":
                yield from (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
            yield path


def _remove_empty(folder: Path, prefix: Path) -> None:
    """Remove the folder, and those above it below the prefix, as far as they are empty."""
    with contextlib.suppress(OSError):
        while folder != prefix:
            folder.rmdir()
            folder = folder.parent
