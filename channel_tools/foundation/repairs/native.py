# SPDX-License-Identifier: BSD-3-Clause
"""The chain that most rows with .debs need, under one name.

The order matters: static libraries are dropped after the CMake files that name them are final, rpaths are set when the
files lie where they will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.elf import set_rpaths
from channel_tools.foundation.repairs.layout import drop_static, drop_unused, flatten
from channel_tools.foundation.repairs.pkgconfig import relocate_cmake, relocate_pkgconfig
from channel_tools.foundation.repairs.scripts import drop_host_scripts

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_CHAIN: tuple[Repair, ...] = (
    flatten,
    drop_unused,
    drop_host_scripts,
    relocate_cmake,
    drop_static,
    relocate_pkgconfig,
    set_rpaths,
)


def repair_native(tree: Path, context: RepairContext) -> None:
    """Bring unpacked .debs into a relocatable prefix's shape: every step of the chain, in order."""
    for step in _CHAIN:
        step(tree, context)


STEPS: dict[str, Repair] = {"native": repair_native}
