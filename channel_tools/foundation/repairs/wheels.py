# SPDX-License-Identifier: BSD-3-Clause
"""What compiled wheels need to live in a conda prefix: their libraries found there, their programs in ``bin/``.

Wheels bring what few hosts have and take libstdc++ and libgcc from the host; here those come from the prefix. The
rpaths that a wheel has to its own folders stay, in front.
"""

from __future__ import annotations

import posixpath
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING

from channel_tools.elf import GLIBC_LIBRARIES, search_folders
from channel_tools.foundation.repairs.elf import dynamic_elf_files, write_rpath
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.elf import ElfInfo
    from channel_tools.foundation.model import Repair, RepairContext

LIB = "lib"


def site_folder(context: RepairContext) -> str:
    """Where a compiled wheel's modules are."""
    return f"lib/python{context.python_version}/site-packages"


def wheel_libraries(tree: Path, context: RepairContext) -> None:
    """Let every ELF file that needs more than glibc look into its wheel's own folders and then into ``lib``.

    Its own folder is one of them: NVIDIA's wheels share one and rely on what was loaded before.
    """
    del context
    by_rpath: dict[str, list[Path]] = defaultdict(list)
    for path, info in dynamic_elf_files(tree):
        where = str(relative_to_tree(path, tree))
        if set(info.needed) - GLIBC_LIBRARIES:
            by_rpath[rpath_of([*own_folders(where, info), posixpath.dirname(where), LIB], where)].append(path)
    for rpath, paths in sorted(by_rpath.items()):
        write_rpath(rpath, paths)


def own_folders(where: str, info: ElfInfo) -> list[str]:
    """The folders inside the prefix that the rpaths of a file at ``where`` name, without ``lib`` itself."""
    folders = search_folders(where, info.rpaths)
    inside = [folder for folder in folders if not folder.startswith(("/", "..")) and folder != LIB]
    return list(dict.fromkeys(inside))


def rpath_of(folders: Sequence[str], where: str) -> str:
    """An rpath from the file at ``where`` to ``folders``, all relative to the prefix."""
    ways = (posixpath.relpath(folder, posixpath.dirname(where)) for folder in folders)
    return ":".join(dict.fromkeys("$ORIGIN" if way == "." else f"$ORIGIN/{way}" for way in ways))


def wheel_program(tree: Path, context: RepairContext) -> None:
    """Keep a wheel's program and not its modules: ``<project>/data`` becomes the prefix, scripts that start it go."""
    site = tree / site_folder(context)
    for data in sorted(site.glob("*/data")):
        for path in list(files_in(data)):
            target = tree / path.relative_to(data)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            path.rename(target)
    shutil.rmtree(site)
    programs = [path for path in files_in(tree) if path.parent == tree / "bin"]
    for path in programs:
        path.chmod(0o755)
    if not programs:
        raise step_error(context, "expected a program in <project>/data/bin or among the wheel's scripts")


STEPS: dict[str, Repair] = {
    "wheel_libraries": wheel_libraries,
    "wheel_program": wheel_program,
}
