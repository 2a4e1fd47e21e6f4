# SPDX-License-Identifier: BSD-3-Clause
"""What compiled wheels need to live in a conda prefix: their libraries found there, their programs in ``bin/``.

Wheels bring what few hosts have and take libstdc++ and libgcc from the host; here those come from the prefix. The
rpaths that a wheel has to its own folders stay, in front. NVIDIA's wheels get the folders that conda-forge's CUDA
packages have, out of Python's.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.elf import LIB, dynamic_elf_files, rpath_of, write_rpaths
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error
from channel_tools.system.elf import GLIBC_LIBRARIES, search_folders

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext
    from channel_tools.system.elf import ElfInfo

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_TARGETS: Mapping[str, str] = {"linux-64": "x86_64-linux", "linux-aarch64": "sbsa-linux"}


def site_folder(context: RepairContext) -> str:
    """The folder of a compiled wheel's modules, relative to the prefix."""
    return f"lib/python{context.python_version}/site-packages"


def wheel_libraries(tree: Path, context: RepairContext) -> None:
    """Let every ELF file that needs more than glibc look into its wheel's own folders and then into ``lib``.

    Its own folder is one of them: NVIDIA's wheels share one and rely on what was loaded before.
    """
    del context
    rpaths: list[tuple[Path, str]] = []
    for path, info in dynamic_elf_files(tree):
        where = str(relative_to_tree(path, tree))
        if set(info.needed) - GLIBC_LIBRARIES:
            rpaths.append((path, rpath_of([*own_folders(where, info), posixpath.dirname(where), LIB], where)))
    write_rpaths(rpaths)


def own_folders(where: str, info: ElfInfo) -> list[str]:
    """The folders inside the prefix that the rpaths of a file at ``where`` name, without ``lib`` itself."""
    folders = search_folders(where, info.rpaths)
    inside = [folder for folder in folders if not folder.startswith(("/", "..")) and folder != LIB]
    return list(dict.fromkeys(inside))


def wheel_program(tree: Path, context: RepairContext) -> None:
    """Keep a wheel's program and not its modules: ``<project>/data`` becomes the prefix, scripts that start it go."""
    site = tree / site_folder(context)
    for data in sorted(site.glob("*/data")):
        _move(data, tree)
    shutil.rmtree(site)
    programs = [path for path in files_in(tree) if path.parent == tree / "bin"]
    for path in programs:
        path.chmod(0o755)
    if not programs:
        raise step_error(context, "expected a program in <project>/data/bin or among the wheel's scripts")


def place_cuda(tree: Path, context: RepairContext) -> None:
    """Move a toolkit wheel's headers and libraries to ``targets/<platform>/``, with links to the libraries in lib."""
    target = tree / "targets" / _TARGETS[context.subdir]
    for folder in _wheel_folders(tree, "cu[0-9]*", context):
        for name in ("include", "lib"):
            _move(folder / name, target / name)
    shutil.rmtree(tree / site_folder(context))
    _link_plain_names(target / "lib")
    (tree / "lib").mkdir(exist_ok=True)
    for path in sorted((target / "lib").glob("*.so*")):
        (tree / "lib" / path.name).symlink_to(os.path.relpath(path, tree / "lib"))


def place_nccl(tree: Path, context: RepairContext) -> None:
    """Move NCCL's wheel to include and lib."""
    for folder in _wheel_folders(tree, "nccl", context):
        for name in ("include", "lib"):
            _move(folder / name, tree / name)
    shutil.rmtree(tree / site_folder(context).split("/site-packages")[0])
    _link_plain_names(tree / "lib")


def _wheel_folders(tree: Path, pattern: str, context: RepairContext) -> list[Path]:
    folders = sorted((tree / site_folder(context) / "nvidia").glob(pattern))
    if len(folders) != 1:
        raise step_error(context, f"expected one folder nvidia/{pattern}, found {len(folders)}")
    return folders


def _move(source: Path, destination: Path) -> None:
    if not source.is_dir():
        return
    for path in list(files_in(source)):
        target = destination / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


def _link_plain_names(folder: Path) -> None:
    """Wheels hold ``libx.so.2`` alone; linkers ask for ``libx.so``."""
    for path in sorted(folder.glob("*.so.*")):
        plain = folder / (path.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(path.name)


STEPS: dict[str, Repair] = {
    "wheel_libraries": wheel_libraries,
    "wheel_program": wheel_program,
    "place_cuda": place_cuda,
    "place_nccl": place_nccl,
}
