# SPDX-License-Identifier: BSD-3-Clause
"""NVIDIA's wheels in the folders that conda-forge's CUDA packages have, out of Python's."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, step_error
from channel_tools.foundation.repairs.wheels import site_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_TARGETS: Mapping[str, str] = {"linux-64": "x86_64-linux", "linux-aarch64": "sbsa-linux"}


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
    found = sorted((tree / site_folder(context) / "nvidia").glob(pattern))
    if len(found) != 1:
        raise step_error(context, f"expected one folder nvidia/{pattern}, found {len(found)}")
    return found


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


STEPS: dict[str, Repair] = {"place_cuda": place_cuda, "place_nccl": place_nccl}
