# SPDX-License-Identifier: BSD-3-Clause
"""Work folders: the one in which builds and validations run, and temporary ones.

A build passes its folders to shells, make, CMake, pkg-config and compilers' options, few of which accept a space,
``:``, ``,``, ``$`` or ``=`` in a path; socket paths have at most 108 bytes, and the engine pads the path of a build's
prefix to 255. So if the output folder's path is unsuitable, the work folder is elsewhere, under the same name in every
run, so that the next run finds and removes what a killed one left. Its path does not end up in packages.

Temporary folders left by killed processes are removed by the next process that makes one in the same place. A process
holds a lock of the operating system on its folder, which is released however it ends: a folder without a lock is
abandoned. If a file system has no locks for folders, as NFS, such folders stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_WORK_PATH_BYTES = 80
_PLAIN = re.compile(r"/[A-Za-z0-9._/+@~-]*", re.ASCII)
_KEY_DIGITS = 12
_IN_OUTPUT = "work"
_SYSTEM_TEMPORARY = Path("/var/tmp")  # noqa: S108 - make_work_folder trusts only a folder that we own in it
_HINT = (
    "choose a writable folder with --output, CHANNEL_TOOLS_CACHE or TMPDIR; "
    f"its path may have at most {MAX_WORK_PATH_BYTES - len('/work/') - _KEY_DIGITS} bytes of A-Z a-z 0-9 . _ + @ ~ -"
)


def is_plain(path: Path) -> bool:
    """Whether all tools can handle an absolute path: its characters and length, and those of its link targets."""
    spellings = {str(path), str(path.resolve())}
    return all(len(text) <= MAX_WORK_PATH_BYTES and _PLAIN.fullmatch(text) for text in spellings)


def choose_work_folder(*, output: Path, cache: Path, environ: Mapping[str, str]) -> Path:
    """The first suitable path of: ``output/work``, a folder in the cache, in TMPDIR, in /var/tmp.

    The cache comes second because environments are hard links to the packages in it. The names of the other folders
    are derived from ``output``; it and ``cache`` are absolute.
    """
    key = hashlib.sha256(os.fsencode(output)).hexdigest()[:_KEY_DIGITS]
    ours = f"channel_tools-{os.geteuid()}"
    candidates = [output / _IN_OUTPUT, cache / _IN_OUTPUT / key]
    if (temporary := environ.get("TMPDIR", "")).startswith("/"):
        candidates.append(Path(temporary, ours, key))
    last = _SYSTEM_TEMPORARY / ours / key
    return next((folder for folder in candidates if is_plain(folder)), last)


def make_work_folder(folder: Path) -> None:
    """Create the folder that choose_work_folder chose.

    Raises UsageError if it is in a folder that others can write to and is not private: they could change what we build.
    """
    shared = folder.parent.name == f"channel_tools-{os.geteuid()}"
    try:
        if shared:
            folder.parent.parent.mkdir(parents=True, exist_ok=True)
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            _check_private(folder.parent)
        folder.mkdir(mode=0o777 if folder.name == _IN_OUTPUT else 0o700, parents=True, exist_ok=True)
    except (PermissionError, FileExistsError, NotADirectoryError) as err:
        message = f"{err.filename}: {err.strerror}; builds need a private folder there"
        raise UsageError(message, hint=_HINT) from None


def _check_private(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{folder}: not a folder; expected a private folder for builds", hint=_HINT)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        access = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
        message = f"{folder}: others can write there ({access}); expected owner {os.geteuid()}, mode 0700"
        raise UsageError(message, hint=f"remove it, or {_HINT}")


PREFIX = ".channel_tools-tmp-"


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that only this user can enter, and remove it after the block.

    It is in ``parent``, by default in TMPDIR or its default. Folders left there by killed processes of this user are
    removed first. Raises OSError if none can be made.
    """
    parent_folder = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(parent_folder)
    folder, descriptor = _make_locked(parent_folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the next run removes what is still in use
        os.close(descriptor)


def _make_locked(parent: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            descriptor = _open_folder(folder)
        except FileNotFoundError:  # another process considered it abandoned
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is about to remove it
            os.close(descriptor)
            continue
        except OSError:  # the file system has no locks: nobody else gets one either
            return folder, descriptor
        if folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    """Remove our folders that nobody has locked; those that cannot be examined or removed stay."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):  # noqa: PTH208 - names only, of a folder that may hold many
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(parent / name)


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder unless it is in use. Raises OSError if it is."""
    descriptor = _open_folder(folder)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
