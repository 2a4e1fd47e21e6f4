# SPDX-License-Identifier: BSD-3-Clause
"""Packs an environment as one file by conda-pack, for machines without conda and without a network.

conda-pack takes what packages installed from the package cache, where no prefix was written into it, and adds
``bin/conda-unpack``, which writes the new prefix when the archive has been unpacked.
"""

from __future__ import annotations

import collections
import filecmp
from typing import TYPE_CHECKING

from channel_tools.environments.activation import check_environment
from channel_tools.system.errors import UsageError
from channel_tools.system.extras import needs_extra
from channel_tools.system.files import absolute_path, atomic_path, new_file_mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conda_pack import CondaEnv, File

SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.zst", ".tar", ".zip")
"""The archives that conda-pack writes, by their names' endings."""


def check_archive(
    archive: Path, *, replace: bool, suffixes: tuple[str, ...] = SUFFIXES, kind: str = "an archive"
) -> None:
    """Raise UsageError for a name that says no format, one that exists without ``replace``, and a missing folder."""
    if not archive.name.endswith(suffixes):
        raise UsageError(f"{archive}: not the name of {kind}", hint=f"let it end in {' or '.join(suffixes)}")
    if archive.exists() and not replace:
        raise UsageError(f"{archive}: exists; nothing was written", hint="name another file, or give --force")
    if not archive.parent.is_dir():
        raise UsageError(f"{archive}: there is no folder {archive.parent}", hint="make it, or name another file")


def pack_environment(prefix: Path, archive: Path, *, threads: int) -> int:
    """Write the environment at ``prefix`` to ``archive``, whose ending says the format; returns its bytes.

    Raises CommandError without conda-pack, and UsageError for what is no environment, has files of packages changed or
    removed, or packages that the package cache has no more.
    """
    with needs_extra("pack", "packing an environment"):
        from conda_pack import CondaPackException  # noqa: PLC0415 - of an extra

    prefix = absolute_path(prefix)
    check_environment(prefix)
    ending = next(ending for ending in SUFFIXES if archive.name.endswith(ending))
    try:
        environment = packable(prefix)
        with atomic_path(archive) as temporary:
            environment.pack(output=str(temporary), format=ending.removeprefix("."), n_threads=threads)
            temporary.chmod(new_file_mode())
    except CondaPackException as err:
        reason = " ".join(str(err).split())
        hint = "create the environment again with channel_tools env create, and pack it before anything else changes it"
        if "--zip-symlinks" in reason:
            reason = "a link leads to a file of another package, and zip files have no links"
            hint = f"pack it as a tar file: -o {archive.name.removesuffix(ending)}.tar.gz"
        raise UsageError(f"{prefix}: cannot be packed: {reason}", hint=hint) from None
    return archive.stat().st_size


def packable(prefix: Path) -> CondaEnv:
    """The files of an environment; what several packages have is there once, as the environment has it.

    Raises CondaPackException, and UsageError as pack_environment.
    """
    from conda_pack import CondaEnv  # noqa: PLC0415 - of an extra

    environment = CondaEnv.from_prefix(str(prefix), on_missing_cache="raise")
    packages: dict[str, list[File]] = collections.defaultdict(list)
    for file in environment.files:
        packages[file.target].append(file)
    environment.files = [
        same[0] if len(same) == 1 else _installed(same, prefix / target) for target, same in packages.items()
    ]
    return environment


def _installed(same: Sequence[File], path: Path) -> File:
    """The file of several of the same name that is at ``path``."""
    written = []
    for file in same:
        if file.prefix_placeholder is not None:
            written.append(file)
        elif not path.is_symlink() and filecmp.cmp(file.source, path, shallow=False):
            return file
    if len(written) == 1:
        return written[0]
    if any(file.file_mode == "binary" for file in written):
        message = f"{path}: several packages have this file, which has the path of the environment in it"
        raise UsageError(message, hint="install only one of them, or pack the environment without")
    file = same[0]
    # conda-pack looks for the prefix in a text of unknown origin
    file.source, file.prefix_placeholder, file.file_mode = str(path), None, "unknown"
    return file
