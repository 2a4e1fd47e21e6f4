# SPDX-License-Identifier: BSD-3-Clause
"""A CMake package for protobuf: Debian ships none, conda-forge's has one, and recipes may ask for either.

CMake's own FindProtobuf (module mode) works without it; this serves ``find_package(Protobuf CONFIG)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import step_error

if TYPE_CHECKING:
    from channel_tools.foundation.model import Repair, RepairContext

_TEMPLATES = Path(__file__).parent.parent / "data" / "protobuf"
_FILES = ("protobuf-config.cmake", "protobuf-config-version.cmake")
_EXPECTED = ("lib/libprotobuf.so", "lib/libprotobuf-lite.so", "lib/libprotoc.so", "bin/protoc")


def write_protobuf_cmake(tree: Path, context: RepairContext) -> None:
    """Write ``lib/cmake/protobuf`` with the targets that upstream's own CMake package defines."""
    missing = [name for name in _EXPECTED if not (tree / name).exists()]
    if missing:
        raise step_error(context, f"protobuf lacks {', '.join(missing)}")
    folder = tree / "lib" / "cmake" / "protobuf"
    folder.mkdir(parents=True)
    for name in _FILES:
        text = (_TEMPLATES / f"{name}.in").read_text()
        (folder / name).write_text(text.replace("@VERSION@", context.version))


STEPS: dict[str, Repair] = {"write_protobuf_cmake": write_protobuf_cmake}
