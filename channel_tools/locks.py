# SPDX-License-Identifier: BSD-3-Clause
"""One writer at a time: locks of the operating system, which a killed process cannot leave behind."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from channel_tools.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def exclusive_lock(lock_file: Path, *, what: str, timeout_s: float = 0.0) -> Iterator[None]:
    """Hold ``lock_file`` while the block runs; the holder's process id is written beside it for the error message.

    Raises ChannelError when another process holds it for longer than ``timeout_s`` (0: do not wait).
    """
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    owner_file = lock_file.with_name(lock_file.name + ".owner")
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        message = f"{lock_file}: {what} is in use by {_owner(owner_file)}; one writer at a time is allowed"
        raise ChannelError(message, hint="wait until it has ended, then run the same command again") from None
    try:
        owner_file.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.release()


def _owner(owner_file: Path) -> str:
    try:
        return f"process {int(owner_file.read_text(encoding='ascii'))}"
    except (OSError, ValueError):
        return "another process"
