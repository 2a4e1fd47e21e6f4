# SPDX-License-Identifier: BSD-3-Clause
"""Locks of uploads, which a process can hand on to another.

A lock belongs to the open file and not to a process (Linux' OFD locks): a child that inherits the descriptor keeps it
when its parent dies, the system releases it when the last of them has died, and any process can query it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from channel_tools.system.beneath import Beneath

_FLOCK = "hhqqi"
_LOCKED_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})


@contextlib.contextmanager
def try_lock(files: Beneath, name: str, *, mode: int = 0o600) -> Iterator[int | None]:
    """Lock a file while the block runs; yields the open descriptor that keeps the lock, None if it is already locked.

    A missing file is created with ``mode``. A process that gets a copy of the descriptor (a child, or one that it is
    sent to) keeps the lock after the block.
    """
    descriptor = files.open_to_write(name, mode=mode)
    try:
        yield descriptor if _lock(descriptor) else None
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except OSError as err:
        if err.errno in _LOCKED_ERRNOS:
            return False
        raise
    return True


def is_locked(files: Beneath, name: str) -> bool:
    """Whether any process has locked a file now. Raises ChannelError if it is not a regular file."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = files.open_file(name)
        try:
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, answer[: struct.calcsize(_FLOCK)])[0] != fcntl.F_UNLCK)
    return False


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
