# SPDX-License-Identifier: BSD-3-Clause
"""Atomic writing, and hashing without loading a file.

Everything is written beside its destination and renamed over it: a reader sees the old bytes or the new ones, and a
killed writer leaves only a temporary file that the next run removes. A full disk raises DiskFullError. Only regular
files are replaced: never a device, a pipe, a socket, a folder.

Writers exclude each other by locks of the operating system, which a killed process cannot leave behind.

Hashes of bytes that are read anyway.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import select
import shutil
import stat
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from channel_tools.system.errors import DiskFullError, FileAccessError, error_from_os
from channel_tools.system.work_folder import PREFIX, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

TEMPORARY_PREFIX = ".tmp-"
_PIECE_BYTES = 1 << 20
_TAIL_BYTES = 256 << 10
SYNC_EACH_LIMIT = 64
NO_LINK_ERRNOS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP})
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


_CHUNK_BYTES = 1 << 18


@contextlib.contextmanager
def disk_full_reported(where: Path) -> Iterator[None]:
    """Turn the operating system's "no space left" into a DiskFullError that names ``where``."""
    try:
        yield
    except OSError as err:
        if isinstance(error := error_from_os(err, where=where), DiskFullError):
            raise error from err
        raise


def located(folder: Path, text: str) -> Path:
    """The path that a file in ``folder`` means by ``text``, without ``..``; links are not followed."""
    return Path(os.path.normpath(folder / text))


def absolute_path(path: Path) -> Path:
    """The absolute path without ``..``, for what is written into files, which outlive the folders passed on the way.

    Links are followed only before a ``..``: a site's own name for a place stays.
    """
    path = path.absolute()
    while ".." in path.parts:
        place = path.parts.index("..")
        path = Path(*path.parts[: place + 1]).resolve().joinpath(*path.parts[place + 1 :])
    return path


def special_kind(path: Path) -> str | None:
    """The kind of special file at ``path``, links followed, such as ``a device``; None for a regular file or folder.

    None, too, if nothing is there. Raises FileAccessError if it cannot be examined.
    """
    kind = _kind_at(path)
    return None if kind == "a folder" else kind


def _kind_at(path: Path) -> str | None:
    """``a folder``, ``a device`` and so on; None for a regular file, or if nothing is there."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        raise error_from_os(err) from None
    return kind_of(mode)


def kind_of(mode: int) -> str | None:
    """What a file mode (``st_mode``) says: ``a folder``, ``a pipe`` and so on; None for a regular file or a link."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), None)


def check_replaceable(destination: Path, *, folder: bool = False) -> None:
    """Raise FileAccessError unless a file, or with ``folder`` a folder, may be written at ``destination``.

    It must be missing or a regular file, or with ``folder`` a folder. For a symbolic link, its target is checked,
    although a writer replaces the link.
    """
    kind = _kind_at(destination)
    if kind is not None and not (folder and kind == "a folder"):
        message = f"{destination}: is {kind}; only regular files are overwritten"
        raise FileAccessError(message, hint="choose another name, or remove it first")
    if kind is None and destination.is_symlink() and not destination.exists():
        message = f"{destination}: is a symbolic link to {destination.readlink()}, which does not exist"
        raise FileAccessError(message, hint="choose another name, or remove the link first")


@contextlib.contextmanager
def atomic_path(destination: Path, *, durable: bool = True, clear_abandoned: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``destination``; rename it there on success, remove it on failure.

    The caller creates a file or a folder at the yielded path. An existing file is replaced; an existing folder makes
    the rename fail (OSError), since folders cannot be replaced atomically. Without ``durable`` the file is not flushed
    to the disk first: for caches, which may be lost in a power failure. With ``clear_abandoned``, temporary files for
    ``destination`` that killed processes left are removed first: for large or secret files in folders without a lock.

    Raises FileAccessError, before and after the block, if ``destination`` is a device, a pipe or a socket, or a folder
    that would be replaced by a file.
    """
    check_replaceable(destination, folder=True)
    with contextlib.ExitStack() as stack:
        with disk_full_reported(destination.parent), _named_as(destination):
            destination.parent.mkdir(parents=True, exist_ok=True)
            holder = stack.enter_context((temporary_folder if clear_abandoned else _holder)(destination.parent))
        temporary = holder / destination.name
        with disk_full_reported(destination.parent), _named_as(destination, holder):
            yield temporary
            if durable and temporary.is_file():
                _sync_file(temporary)
            check_replaceable(destination, folder=temporary.is_dir())
            temporary.replace(destination)


@contextlib.contextmanager
def _holder(parent: Path) -> Iterator[Path]:
    holder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=parent))
    try:
        yield holder
    finally:
        shutil.rmtree(holder, ignore_errors=True)


@contextlib.contextmanager
def _named_as(destination: Path, holder: Path | None = None) -> Iterator[None]:
    """Make errors name ``destination`` instead of paths below ``holder``, or of any temporary folder beside it."""
    temporary = (holder,) if holder else (destination.parent / TEMPORARY_PREFIX, destination.parent / PREFIX)
    prefixes = tuple(map(str, temporary))
    try:
        yield
    except OSError as err:
        if isinstance(err.filename, str | os.PathLike) and os.fspath(err.filename).startswith(prefixes):
            err.filename, err.filename2 = str(destination), None
        raise


def write_bytes_atomically(destination: Path, content: bytes, *, durable: bool = True) -> None:
    """Replace ``destination`` with ``content``; readers see the old or the new bytes, never a mixture."""
    with atomic_path(destination, durable=durable) as temporary:
        temporary.write_bytes(content)


def write_text_atomically(destination: Path, content: str) -> None:
    """Like write_bytes_atomically, in UTF-8."""
    write_bytes_atomically(destination, content.encode())


def replace_files(files: Iterable[tuple[Path, bytes]]) -> None:
    """Replace files with new content; every one is written and flushed before the first is put in place.

    So a full disk, or a place that cannot be written to, leaves all of them as they were. Raises as atomic_path does.
    """
    with contextlib.ExitStack() as stack:
        for destination, content in files:
            temporary = stack.enter_context(atomic_path(destination, durable=False))
            temporary.write_bytes(content)
            _sync_file(temporary)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, links followed, without waiting for the other end of a pipe.

    Raises FileAccessError for anything but a regular file, and OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if (kind := kind_of(os.fstat(descriptor).st_mode)) is not None:
        os.close(descriptor)
        raise FileAccessError(f"{path}: is {kind}; expected a regular file", hint="check the path")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, *, limit_bytes: int) -> bytes:
    """The content of a regular file, links followed.

    Raises FileAccessError for anything else and for more than ``limit_bytes``, and OSError.
    """
    with open_regular(path) as stream:
        is_larger = os.fstat(stream.fileno()).st_size > limit_bytes
        content = b"" if is_larger else read_at_most(stream, limit_bytes + 1)
    if is_larger or len(content) > limit_bytes:
        raise FileAccessError(f"{path}: has more than {limit_bytes} bytes; at most that many are read")
    return content


def read_at_most(stream: IO[bytes], amount: int) -> bytes:
    """At most ``amount`` bytes of an unbuffered stream; fewer only at its end."""
    pieces: list[bytes] = []
    while amount and (piece := stream.read(min(amount, _PIECE_BYTES))):
        pieces.append(piece)
        amount -= len(piece)
    return b"".join(pieces)


def sha256_of_file(path: Path) -> str:
    """The sha256 of a regular file's bytes in hexadecimal, read in chunks. Raises as open_regular does."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_first_line(path: Path, *, limit_bytes: int = 4096, wait_s: float = 10.0) -> bytes:
    """The first line of a small file or pipe (such as a shell's ``<(...)``), without the line end.

    Raises FileAccessError if it cannot be read, has no line end within ``limit_bytes``, or is a pipe to which nobody
    writes for ``wait_s``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            content = b""
            poll = select.poll()
            poll.register(stream, select.POLLIN)
            while b"\n" not in content:
                if not poll.poll(wait_s * 1000):
                    message = f"{path}: nothing was written to this pipe within {wait_s:.0f} s"
                    raise FileAccessError(message, hint="give a file, or a pipe that a program writes to")
                chunk = stream.read(limit_bytes + 1)
                content += chunk or b""
                if len(content) > limit_bytes:
                    raise FileAccessError(f"{path}: its first line is longer than {limit_bytes} bytes")
                if chunk == b"":
                    break
    except OSError as err:
        raise error_from_os(err, where=path) from None
    return content.partition(b"\n")[0].rstrip(b"\r")


def read_tail(path: Path) -> str:
    """The end of a log, at most 256 KiB of it; bytes that are not UTF-8 are replaced. Raises as open_regular does."""
    with open_regular(path) as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
        return stream.read(_TAIL_BYTES).decode(errors="replace")


def new_file_mode() -> int:
    """The mode of files that this process makes, by its umask: for those that a library has made private."""
    # os.umask() answers only by changing it, for all threads
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    umask = next(line.partition(":")[2] for line in status.splitlines() if line.startswith("Umask:"))
    return 0o666 & ~int(umask, 8)


def link_or_copy(source: Path, destination: Path) -> None:
    """Make ``destination`` a hard link to ``source``, or a copy if the file system has no hard links.

    The destination appears atomically; an existing one is left unchanged.
    """
    if destination.exists():
        return
    with atomic_path(destination) as temporary:
        try:
            os.link(source, temporary)
        except OSError as err:
            if err.errno not in NO_LINK_ERRNOS:
                raise
            shutil.copyfile(source, temporary)


def remove_leftovers(folder: Path) -> list[Path]:
    """Delete what killed writers left in ``folder`` (only our temporary names); returns what was deleted.

    Call it only while holding the lock for writing to ``folder``.
    """
    names = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only, much faster than Paths
    leftovers = sorted(folder / name for name in names if name.startswith(TEMPORARY_PREFIX))
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    return leftovers


def remove_tree(folder: Path) -> None:
    """Remove a folder that a process which is about to end may still be removing files from.

    Raises OSError as shutil.rmtree does, but not for a file that has gone.
    """
    while True:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if folder.exists():
                continue
        return


def walk_entries(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    """Everything below ``folder`` that is not a folder, including symbolic links to folders.

    It yields entries, since making Path objects for the tens of thousands of files of an environment would be slow.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from walk_entries(entry.path)
            else:
                yield entry


def tree_files(tree: Path) -> Iterator[str]:
    """The paths of all files and links below ``tree``, relative to it, sorted."""
    above = len(os.fspath(tree)) + 1
    return iter(sorted(entry.path[above:] for entry in walk_entries(tree)))


def _sync_file(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


class Digest(Protocol):
    """A hash that is being computed; hashlib has no public name for what its functions return."""

    def update(self, data: bytes, /) -> None:
        """Take more bytes."""

    def hexdigest(self) -> str:
        """The hash of all bytes so far, as text."""


class HashedStream:
    """Reads from a stream and hashes what is read; ``digest`` is the hash so far, by default a new sha256."""

    def __init__(self, source: IO[bytes], digest: Digest | None = None) -> None:
        self.digest: Digest = hashlib.sha256() if digest is None else digest
        self._source = source

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, up to ``size`` of them."""
        data = self._source.read(size)
        self.digest.update(data)
        return data

    def hexdigest(self) -> str:
        """The hash of all bytes; reads those that have not been read yet."""
        read, update = self._source.read, self.digest.update
        while chunk := read(_CHUNK_BYTES):
            update(chunk)
        return self.digest.hexdigest()
