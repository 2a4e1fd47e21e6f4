# SPDX-License-Identifier: BSD-3-Clause
"""Writing so that nothing is ever seen half-written, and hashing without loading a file.

Everything is written beside its destination and renamed over it: a reader sees the old bytes or the new ones, and a
killed writer leaves only a temporary name that the next run clears. A full disk is reported as what it is.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPORARY_PREFIX = ".tmp-"
_CHUNK_BYTES = 1 << 20
_NO_LINK_ERRNOS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP})
_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextlib.contextmanager
def disk_full_reported(where: Path) -> Iterator[None]:
    """Turn the operating system's "no space left" into a DiskFullError that names ``where``."""
    try:
        yield
    except OSError as err:
        if err.errno in _DISK_FULL_ERRNOS:
            message = f"{err.filename or where}: no space left on the device that holds {where}"
            hint = (
                "free space there, or choose another place with --output or CHANNEL_TOOLS_CACHE; "
                "then run the same command again: what is complete is kept"
            )
            raise DiskFullError(message, hint=hint) from err
        raise


@contextlib.contextmanager
def atomic_path(destination: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``destination``; rename it there on success, remove it on failure.

    The caller creates a file or a folder at the yielded path. An existing file is replaced; an existing folder makes
    the rename fail (OSError), since folders cannot be replaced atomically. Without ``durable`` the file is not flushed
    to the disk first: for caches, which may be lost with the power.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=destination.parent))
    temporary = holder / destination.name
    try:
        with disk_full_reported(destination.parent):
            yield temporary
            if durable and temporary.is_file():
                _sync_file(temporary)
            temporary.replace(destination)
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def write_bytes_atomically(destination: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace ``destination`` by ``content``; readers see the old or the new bytes, never a mixture."""
    with atomic_path(destination, durable=durable) as temporary:
        temporary.write_bytes(content)


def write_text_atomically(destination: Path, content: str) -> None:
    """As write_bytes_atomically, in UTF-8."""
    write_bytes_atomically(destination, content.encode())


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes in hexadecimal, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def link_or_copy(source: Path, destination: Path) -> None:
    """Make ``destination`` the same bytes as ``source``: a hard link, or a copy where the file system has none.

    The destination appears atomically; an existing one is left alone.
    """
    if destination.exists():
        return
    with atomic_path(destination) as temporary:
        try:
            os.link(source, temporary)
        except OSError as err:
            if err.errno not in _NO_LINK_ERRNOS:
                raise
            shutil.copyfile(source, temporary)


def remove_leftovers(folder: Path) -> list[Path]:
    """Delete what killed writers left in ``folder`` (its own temporary names only) and say what it was.

    Call it only while holding the lock that guards writing to ``folder``.
    """
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only, much faster than Paths
    leftovers = sorted(folder / name for name in names if name.startswith(TEMPORARY_PREFIX))
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return leftovers


def _sync_file(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
