# SPDX-License-Identifier: BSD-3-Clause
"""Temporary folders; those that killed processes left are removed by the next process that makes one in the same place.

A process holds a lock of the operating system on its folder, which ends with it however it ends: a folder without one
is nobody's. Where a file system has no locks for folders, as NFS has none, such folders stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = ".channel_tools-tmp-"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user can enter, and remove it after the block.

    It lies in ``parent``, by default in TMPDIR or what stands in for it. Before, the folders of this user's processes
    that were killed are removed from there. Raises OSError where none can be made.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(place)
    folder, descriptor = _make_locked(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is in use yet, the next run removes
        os.close(descriptor)


def _make_locked(place: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        try:
            descriptor = _open_folder(folder)
        except FileNotFoundError:  # another process took it for an abandoned one
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it is about to
            os.close(descriptor)
            continue
        except OSError:  # no locks here: nobody else gets one either
            return folder, descriptor
        if folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _remove_abandoned(place: Path) -> None:
    """Remove our folders that nobody holds the lock of; what cannot be looked at or removed stays."""
    with contextlib.suppress(OSError):
        for name in os.listdir(place):  # noqa: PTH208 - names only, of a folder that may hold many
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(place / name)


def _remove_if_abandoned(folder: Path) -> None:
    """Raises OSError where it is in use."""
    descriptor = _open_folder(folder)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
