# SPDX-License-Identifier: BSD-3-Clause
"""Whether there is room, asked before anything is written."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from channel_tools.errors import DiskFullError

if TYPE_CHECKING:
    from pathlib import Path

_RESERVE_BYTES = 16 << 20


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFullError unless ``needed_bytes`` fit into the file system of ``folder``."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _RESERVE_BYTES:
        message = f"{folder.parent}: {needed_bytes} bytes are needed there, {free} are free; nothing was written"
        raise DiskFullError(message, hint="free space there, or choose another place")
