# SPDX-License-Identifier: BSD-3-Clause
"""CMake packages that upstream writes and Debian's build of a release does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.model import DATA_FOLDER
from channel_tools.foundation.repairs.layout import step_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_TEMPLATES = DATA_FOLDER / "cmake"
_GRPC_FILES = ("gRPCConfig.cmake.in", "gRPCConfigVersion.cmake.in")
_GRPC_LIBRARIES = ("gpr", "grpc", "grpc++", "grpc++_reflection")
GRPC_EXPECTED = (*(f"lib/lib{name}.so" for name in _GRPC_LIBRARIES), "bin/grpc_cpp_plugin")
"""What the targets of gRPC's package name."""


def write_grpc_cmake(tree: Path, context: RepairContext) -> None:
    """Write ``lib/cmake/grpc`` with the targets of upstream's own package that C++ programs use.

    Raises FoundationError if a library or program is missing.
    """
    write_cmake_package(tree, context, "gRPC", expected=GRPC_EXPECTED, templates=[_TEMPLATES / f for f in _GRPC_FILES])


def write_cmake_package(
    tree: Path, context: RepairContext, name: str, *, expected: Sequence[str], templates: Sequence[Path]
) -> None:
    """Write ``lib/cmake/NAME``, in lower case, from templates, whose ``@VERSION@`` is the package's.

    Raises FoundationError if one of the ``expected`` files, which its targets name, is missing.
    """
    missing = [path for path in expected if not (tree / path).exists()]
    if missing:
        raise step_error(context, f"{name} lacks {', '.join(missing)}")
    folder = tree / "lib" / "cmake" / name.lower()
    folder.mkdir(parents=True)
    for template in templates:
        (folder / template.stem).write_text(template.read_text().replace("@VERSION@", context.version))


STEPS: dict[str, Repair] = {"write_grpc_cmake": write_grpc_cmake}
