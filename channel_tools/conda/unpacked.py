# SPDX-License-Identifier: BSD-3-Clause
"""Checks a package that is unpacked in a folder by the same rules as a package file.

Clients link what is in such a folder, at the paths that its paths.json names: so its files are compared with the rows
whenever they might not be those of the package.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import IO, TYPE_CHECKING, cast

from channel_tools.conda.checking import check_metadata, path_rows, read_info, read_payload
from channel_tools.conda.contents import InfoFiles, PackageProblem, PathsJson, damaged_package, info_object
from channel_tools.conda.metadata import subdir_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path
    from typing import NoReturn

    from channel_tools.conda.checking import Member
    from channel_tools.conda.metadata import Correction

_INFO = "info"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Mapping[int, bytes] = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


def check_unpacked(
    folder: Path,
    package: Path,
    *,
    stem: str,
    subdir: str,
    ours: Collection[str] = (),
    correction: Correction | None = None,
) -> None:
    """Raise IntegrityError, with ``package`` as the place, unless a folder holds exactly the package that it should.

    Its index.json must say that it is the package ``stem`` (name, version and build) of ``subdir``. All files are
    hashed. ``ours`` are names of files in the folder that are not the package's. ``correction`` is as for
    checked_index.
    """

    def refuse(problem: PackageProblem) -> NoReturn:
        raise damaged_package(package, str(problem))

    names = sorted(name for name in os.listdir(folder) if name not in ours)  # noqa: PTH208 - names only
    with InfoFiles(all_files=False) as info:
        read_info(_members(folder, [_INFO]), package, info, refuse)
        check_metadata(info, package, correction)
        index = info_object(info, "index.json", package)
        name, version, build = index["name"], index["version"], index["build"]
        if f"{name}-{version}-{build}" != stem:
            raise damaged_package(package, f"its index.json says it is {name} {version} {build}")
        if (found_subdir := subdir_of(index)) not in {None, subdir}:
            raise damaged_package(package, f"its index.json says it is for {found_subdir}; it is offered for {subdir}")
        listed = PathsJson(path_rows(info, package), refuse)
        read_payload(_members(folder, [name for name in names if name != _INFO]), listed, None, refuse)


def _members(folder: Path, names: list[str]) -> Iterator[Member]:
    """The entries ``names`` of a folder, and everything below them, as the members of an archive."""
    waiting = names[::-1]
    while waiting:
        name = waiting.pop()
        path = f"{folder}/{name}"  # text and not a Path: there are tens of thousands
        status = os.lstat(path)
        header = tarfile.TarInfo(name)
        header.type = _KINDS.get(stat.S_IFMT(status.st_mode), tarfile.CHRTYPE)
        header.mode = stat.S_IMODE(status.st_mode)
        if header.issym():
            header.linkname = os.readlink(path)  # noqa: PTH115
        if not header.isreg():
            yield header, None
        else:
            header.size = status.st_size
            with io.FileIO(os.open(path, _FLAGS)) as stream:
                yield header, cast("IO[bytes]", stream)
        if header.isdir():
            waiting += [f"{name}/{below}" for below in sorted(os.listdir(path), reverse=True)]  # noqa: PTH208
