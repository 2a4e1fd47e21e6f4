# SPDX-License-Identifier: BSD-3-Clause
"""Locks that a process can hand to its child and anybody can ask about without taking them.

They belong to the open file and not to a process (Linux' OFD locks): a child that inherits the descriptor holds the
lock on when its parent dies, and the system releases it when the last of them has.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FLOCK = "hhqqi"
_TAKEN_ERRNOS = frozenset({errno.EACCES, errno.EAGAIN})


def try_hold(path: Path) -> int | None:
    """An open descriptor that holds the lock ``path`` until it is closed; None while somebody else holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
    except OSError as err:
        os.close(descriptor)
        if err.errno in _TAKEN_ERRNOS:
            return None
        raise
    return descriptor


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, found[: struct.calcsize(_FLOCK)])[0] != fcntl.F_UNLCK)
    return False


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
