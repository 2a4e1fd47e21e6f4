# SPDX-License-Identifier: BSD-3-Clause
"""Files in an open folder, by its descriptor: made, linked, flushed and removed, whatever path leads there by now."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from typing import IO

from channel_tools.system.files import NO_LINK_ERRNOS, TEMPORARY_PREFIX
from channel_tools.system.resolving import FOLDER_FLAGS, open_below

FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MODE = 0o666
_PIECE_BYTES = 1 << 20


def temporary_name() -> str:
    """A new name that remove_leftovers knows."""
    return TEMPORARY_PREFIX + secrets.token_hex(8)


def status_at(folder: int, name: str) -> os.stat_result | None:
    """The status of a name in an open folder, of a link itself; None if there is nothing."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def made_folder(root: int, name: str) -> int:
    """Make the folder, with those above it that are missing; returns its descriptor."""
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        parent = open_below(root, "/".join(parts[: count - 1]), FOLDER_FLAGS)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(parts[count - 1], dir_fd=parent)
        finally:
            os.close(parent)
    return open_below(root, name, FOLDER_FLAGS)


def write_new(folder: int, name: str, content: bytes | IO[bytes]) -> None:
    """Make a file, from bytes or a stream. Raises FileExistsError if something, also a link, has the name."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE, dir_fd=folder)
    try:
        for piece in [content] if isinstance(content, bytes) else iter(lambda: content.read(_PIECE_BYTES), b""):
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def sync_entry(folder: int, name: str) -> None:
    """Flush a file to the disk."""
    descriptor = os.open(name, FILE_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy_entry(source: IO[bytes], folder: int, name: str) -> None:
    """Give an open file the new name by a hard link; by a copy where there can be none."""
    try:
        os.link(f"/proc/self/fd/{source.fileno()}", name, dst_dir_fd=folder, follow_symlinks=True)
    except OSError as err:
        if err.errno not in {*NO_LINK_ERRNOS, errno.ENOENT}:  # ENOENT: /proc is not mounted, or the file was deleted
            raise
        source.seek(0)
        write_new(folder, name, source)
        sync_entry(folder, name)


def remove_entry(folder: int, name: str) -> None:
    """Remove a file or a whole folder, nothing outside it; what cannot be removed stays."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
