# SPDX-License-Identifier: BSD-3-Clause
"""Compiles a package's Python modules again, so that their byte code does not name the build's folders.

pip compiles modules under the build prefix, and py-rattler-build 0.73 those without byte code in the folder that it
packs from (``compile_pyc`` in its post_process/python.rs). Both write the module's path into it. Here the path is
relative to the prefix, as in the foundation's packages; Python puts the real one there at the import.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from channel_tools.foundation.bytecode import compile_modules

if TYPE_CHECKING:
    from pathlib import Path

_PREFIXES = "bld/*/host_env*"
_TEMPORARY = "tmp"


def recompile_modules(output: Path) -> tuple[str, ...]:
    """Compile the modules of the package that the engine packs, if byte code of one names the build's folder.

    ``output`` is the engine's output folder, beside the folder of its temporary files. To be called between the
    engine's own compilation and its list of hashes. Returns a note on what was done. Raises FoundationError if the
    Python of the host environment does not run on this machine.
    """
    work, notes = output.parent, []
    for prefix in sorted(output.glob(_PREFIXES)):
        for folder in sorted((work / _TEMPORARY).glob("*/lib/python3.*")):
            if (prefix / "bin" / folder.name).is_file() and (count := _count_naming(work, folder)):
                compile_modules(folder.parent.parent, prefix, python=folder.name.removeprefix("python"))
                notes.append(f"byte code that named the build's folder was compiled again (files: {count})")
    return tuple(notes)


def _count_naming(work: Path, folder: Path) -> int:
    """How many files of byte code below ``folder`` name the folder ``work``."""
    text = os.fsencode(work)
    return sum(path.is_file() and text in path.read_bytes() for path in folder.rglob("*.pyc"))
