# SPDX-License-Identifier: BSD-3-Clause
"""Lock files between processes, with the holder's process id for the error message of the others."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from channel_tools.system.errors import ChannelError, error_from_os
from channel_tools.system.files import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_MOMENT_S = 0.2
"""Longer than is_locked holds the lock that it tests."""


@contextlib.contextmanager
def exclusive_lock(
    lock_file: Path, *, resource: str, timeout_s: float = 0.0, folder: AbstractContextManager[int] | None = None
) -> Iterator[None]:
    """Lock ``lock_file`` while the block runs; the holder's process id is written beside it for the error message.

    ``folder`` opens the folder of the lock, if it is one that others can exchange (Beneath.folder). Raises ChannelError
    if another process holds it for longer than ``timeout_s``, and longer than is_locked does.
    """
    with contextlib.ExitStack() as stack:
        parent = lock_file.parent
        if folder is None:
            parent.mkdir(parents=True, exist_ok=True)
        else:
            parent = Path(f"/proc/self/fd/{stack.enter_context(folder)}")
        owner_file = parent / f"{lock_file.name}.owner"
        _check_lock_file(lock_file, parent / lock_file.name)
        _check_lock_file(owner_file, owner_file)
        lock = FileLock(parent / lock_file.name)
        try:
            lock.acquire(timeout=max(timeout_s, _MOMENT_S))
        except Timeout:
            message = f"{lock_file}: {resource} is in use by {_owner(owner_file)}; only one writer at a time is allowed"
            raise ChannelError(message, hint="wait until it has finished, then run the same command again") from None
        except OSError as err:
            raise error_from_os(OSError(err.errno, err.strerror or str(err), str(lock_file))) from err
        try:
            _write_owner(owner_file)
            yield
        finally:
            lock.release()


def _check_lock_file(lock_file: Path, path: Path) -> None:
    """Raise ChannelError if something else than a regular file has the name of a lock."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        kind = "a symbolic link" if stat.S_ISLNK(mode) else kind_of(mode)
        if kind is not None:
            message = f"{lock_file}: is {kind}; expected a lock, which is a regular file"
            raise ChannelError(message, hint="remove it; it is made again")


def _write_owner(path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def is_locked(lock_file: Path, *, wait_s: float = 0.0) -> bool:
    """Whether a process holds the lock, and keeps it for ``wait_s``; False if the file does not exist.

    The lock is taken for a moment to find out, so the file must be writable.
    """
    if not lock_file.is_file():
        return False
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=wait_s)
    except Timeout:
        return True
    lock.release()
    return False


def _owner(owner_file: Path) -> str:
    try:
        return f"process {int(owner_file.read_text(encoding='ascii'))}"
    except (OSError, ValueError):
        return "another process"
