# SPDX-License-Identifier: BSD-3-Clause
"""Places that are written to: whether there is room, asked before anything is written, and what else is wrong there."""

from __future__ import annotations

import contextlib
import errno
import shutil
from typing import TYPE_CHECKING

from channel_tools.errors import DiskFullError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RESERVE_BYTES = 16 << 20
_TOO_LARGE_HINT = "the medium's file system has no files of this size: write the bundle to a folder, or format it anew"


@contextlib.contextmanager
def unusable_reported(place: Path) -> Iterator[None]:
    """Turn the operating system's refusals to write at ``place`` into a UsageError; a full disk is not one of them."""
    try:
        yield
    except OSError as err:
        if err.errno in {errno.ENOSPC, errno.EDQUOT} or err.errno is None:
            raise
        message = f"{err.filename or place}: cannot be written: {err.strerror}"
        hint = _TOO_LARGE_HINT if err.errno == errno.EFBIG else f"choose another place than {place}, or mend that"
        raise UsageError(message, hint=hint) from err


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFullError unless ``needed_bytes`` fit into the file system of ``folder``."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _RESERVE_BYTES:
        message = f"{folder.parent}: {needed_bytes} bytes are needed there, {free} are free; nothing was written"
        raise DiskFullError(message, hint="free space there, or choose another place")
