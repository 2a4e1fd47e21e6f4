# SPDX-License-Identifier: BSD-3-Clause
"""CMake packages that upstream writes and Debian's build of a release does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.model import DATA_FOLDER
from channel_tools.foundation.repairs.layout import step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_TEMPLATES = DATA_FOLDER / "cmake"
_GRPC_FILES = ("gRPCConfig.cmake", "gRPCConfigVersion.cmake")
_GRPC_LIBRARIES = ("gpr", "grpc", "grpc++", "grpc++_reflection")
GRPC_EXPECTED = (*(f"lib/lib{name}.so" for name in _GRPC_LIBRARIES), "bin/grpc_cpp_plugin")
"""What the targets of gRPC's package name."""


def write_grpc_cmake(tree: Path, context: RepairContext) -> None:
    """Write ``lib/cmake/grpc`` with the targets of upstream's own package that C++ programs use.

    Raises FoundationError if a library or program is missing.
    """
    missing = [name for name in GRPC_EXPECTED if not (tree / name).exists()]
    if missing:
        raise step_error(context, f"gRPC lacks {', '.join(missing)}")
    folder = tree / "lib" / "cmake" / "grpc"
    folder.mkdir(parents=True)
    for name in _GRPC_FILES:
        text = (_TEMPLATES / f"{name}.in").read_text()
        (folder / name).write_text(text.replace("@VERSION@", context.version))


STEPS: dict[str, Repair] = {"write_grpc_cmake": write_grpc_cmake}
