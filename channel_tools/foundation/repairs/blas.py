# SPDX-License-Identifier: BSD-3-Clause
"""OpenBLAS where a prefix has its libraries and headers.

Debian keeps each build of OpenBLAS (threads, OpenMP, serial) in a folder of its own, among which alternatives choose;
a prefix has one.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import native_place, relayout, step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_FLAVOUR = "openblas-pthread"


def place_openblas(tree: Path, context: RepairContext) -> None:
    """Bring Debian's build with threads of its own to ``lib`` and ``include``; ``native`` does the rest.

    Raises FoundationError if the packages have no such build.
    """
    if not any(tree.glob(f"usr/*/{context.multiarch}/{_FLAVOUR}")):
        raise step_error(context, f"expected a folder {_FLAVOUR}")

    def new_path(path: PurePosixPath) -> PurePosixPath:
        moved = native_place(path, context)
        return PurePosixPath("usr", *(part for part in moved.parts if part != _FLAVOUR))

    relayout(tree, context, new_path)
    for package in tree.glob("usr/lib/pkgconfig/openblas.pc"):
        package.write_text(package.read_text().replace(f"/{_FLAVOUR}", ""))


STEPS: dict[str, Repair] = {"place_openblas": place_openblas}
