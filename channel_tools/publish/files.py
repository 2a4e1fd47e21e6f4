# SPDX-License-Identifier: BSD-3-Clause
"""Sets made of package files that people name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.channel.model import PACKAGE_SUFFIX
from channel_tools.errors import UsageError
from channel_tools.files import sha256_of_file
from channel_tools.publish.model import PackageFile, PackageSet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.channel import Foundation


def file_set(paths: Sequence[Path], foundation: Foundation) -> PackageSet:
    """The set of package files that lie in ``.../subdir/name.conda``; packages of ours, built on ``foundation``.

    Raises UsageError for what is no package file, and for two files of one name.
    """
    files: dict[str, PackageFile] = {}
    for path in paths:
        file = _package_file(path)
        if file.key in files and files[file.key].sha256 != file.sha256:
            message = f"{path}: {files[file.key].path} has the same name and other bytes"
            raise UsageError(message, hint="publish one of them")
        files[file.key] = file
    name = paths[0].name if len(paths) == 1 else f"{len(files)} files"
    return PackageSet(name=name, files=tuple(sorted(files.values())), foundation=foundation)


def _package_file(path: Path) -> PackageFile:
    if not path.name.endswith(PACKAGE_SUFFIX) or not path.is_file():
        message = f"{path}: no such package file; expected the path of a {PACKAGE_SUFFIX} file in its subdir's folder"
        raise UsageError(message, hint="for example output/channel/linux-64/toy-1.0-0.conda")
    absolute = path.absolute()
    return PackageFile(
        subdir=absolute.parent.name,
        file_name=path.name,
        path=absolute,
        sha256=sha256_of_file(path),
        size_bytes=path.stat().st_size,
        foundation=False,
    )
