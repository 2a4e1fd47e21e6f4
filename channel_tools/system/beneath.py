# SPDX-License-Identifier: BSD-3-Clause
"""Files below a folder that others can write to, such as a channel's: opened once, beneath it, and then used.

A check by path and a use by path can be about two files, since a link may be exchanged in between. So a name is
resolved beneath an open folder, what was opened is checked, and its descriptor is what is read or written through.

One rule for all of it: a symbolic link is followed if it is relative, stays in the folder and does not lead to a name
that begins with a dot. Any other link is an error. Only regular files are read, up to a stated number of bytes, and
only regular files are replaced (a link is replaced itself, never what it leads to).

How a name is resolved: ``system/resolving.py``.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from channel_tools.system.errors import NO_MEANS_ERRNOS, ChannelError, error_from_os
from channel_tools.system.files import NO_LINK_ERRNOS, SYNC_EACH_LIMIT, TEMPORARY_PREFIX, kind_of
from channel_tools.system.resolving import FOLDER_FLAGS, LinkError, open_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader
    from pathlib import Path

_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MODE = 0o666
_PIECE_BYTES = 1 << 20
_REPAIR = "remove it, or restore it from a copy of the channel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beneath:
    """The folder ``inside`` of the folder ``root``; every name is relative to it, and links stay in ``root``.

    ``root`` itself is named by somebody who may read and write everything that this process may: its path is followed.
    Each call opens it anew, so a value of this kind holds no descriptor. All raise ChannelError for what is there but
    is not what it should be, FileAccessError where the system denies access, DiskFullError.
    """

    root: Path
    inside: str = ""

    @property
    def path(self) -> Path:
        """The folder's path, for messages."""
        return self.root / self.inside if self.inside else self.root

    def at(self, name: str) -> Beneath:
        """A folder below this one."""
        return Beneath(root=self.root, inside=self._full(name))

    def _full(self, name: str) -> str:
        return f"{self.inside}/{name}" if self.inside and name else name or self.inside

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BufferedReader]:
        """A regular file, as a stream. Raises FileNotFoundError if there is none of that name."""
        with self.reported(name):
            descriptor = self.open_file(name)
        with os.fdopen(descriptor, "rb") as stream:
            yield stream

    def open_file(self, name: str) -> int:
        """The descriptor of a regular file, for reading. Raises FileNotFoundError, and OSError without a path."""
        root = os.open(self.root, FOLDER_FLAGS)  # no context manager: this is done for every download
        try:
            descriptor = open_below(root, self._full(name), _FILE_FLAGS)
        except OSError as err:
            if err.errno != errno.ENXIO:  # a socket, or a pipe that nobody reads
                raise
            raise self.unexpected(name, "a socket") from None
        finally:
            os.close(root)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and (kind := kind_of(mode)) is not None:
            os.close(descriptor)
            raise self.unexpected(name, kind)
        return descriptor

    def read(self, name: str, *, limit_bytes: int) -> bytes:
        """The content of a regular file of at most ``limit_bytes``. Raises FileNotFoundError if there is none."""
        with self.opened(name) as stream, self.reported(name):
            size = os.fstat(stream.fileno()).st_size
            if size <= limit_bytes:
                content = _read_at_most(stream, limit_bytes + 1)
                if (size := len(content)) <= limit_bytes:
                    return content
        message = f"{self.path / name}: has {size} bytes or more; at most {limit_bytes} are read"
        raise ChannelError(message, hint=_REPAIR)

    def stat(self, name: str) -> os.stat_result | None:
        """The status of what has that name, of any kind; None if there is nothing."""
        with self.reported(name), contextlib.suppress(FileNotFoundError), self._root() as root:
            descriptor = open_below(root, self._full(name), os.O_PATH | os.O_CLOEXEC)
            try:
                return os.fstat(descriptor)
            finally:
                os.close(descriptor)
        return None

    def file_stat(self, name: str) -> os.stat_result | None:
        """The status of a regular file; None if there is nothing of that name."""
        status = self.stat(name)
        if status is not None and (kind := kind_of(status.st_mode)) is not None:
            raise self.unexpected(name, kind)
        return status

    def names(self, name: str = "") -> list[str]:
        """What a folder contains, sorted; empty if there is no such folder."""
        with self.reported(name), contextlib.suppress(FileNotFoundError), self._root() as root:
            descriptor = open_below(root, self._full(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
            finally:
                os.close(descriptor)
        return []

    def stats(self, name: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """The names in a folder with their status, links followed; those that lead nowhere are left to ``stat``."""
        with self.reported(name), contextlib.suppress(FileNotFoundError), self._root() as root:
            descriptor = open_below(root, self._full(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with os.scandir(descriptor) as entries:
                    found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            finally:
                os.close(descriptor)
            yield from found

    @contextlib.contextmanager
    def folder(self, name: str = "", *, make: bool = False) -> Iterator[int]:
        """The descriptor of a folder, to name what is in it; with ``make``, it is made if it is missing.

        Raises FileNotFoundError if it is missing.
        """
        with self.reported(name), self._root() as root:
            try:
                descriptor = open_below(root, self._full(name), FOLDER_FLAGS)
            except FileNotFoundError:
                if not make:
                    raise
                descriptor = _made(root, self._full(name))
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Replace a file atomically, making its folder; readers see the old bytes or the new ones."""
        self.write_all([(name, content)], durable=durable)

    def write_all(self, files: Iterable[tuple[str, bytes]], *, durable: bool = True) -> None:
        """Replace files (name, content), each atomically and in this order; they are flushed together before."""
        with self.staged(files, durable=durable) as staged:
            staged.put_in_place()

    @contextlib.contextmanager
    def staged(self, files: Iterable[tuple[str, bytes]], *, durable: bool = True) -> Iterator[Staged]:
        """Write files beside their destinations; what is not put in place when the block ends is removed."""
        with contextlib.ExitStack() as stack:
            staged = Staged(self, stack)
            try:
                for name, content in files:
                    staged.add(name, content)
                if durable:
                    staged.sync()
                yield staged
            finally:
                staged.discard()

    def link(self, source: IO[bytes], name: str) -> None:
        """Give the open file ``source`` another name, by a hard link or else a copy; what has that name is kept."""
        parent, _slash, last = name.rpartition("/")
        with self.folder(parent, make=True) as folder, self.reported(name):
            if _status_at(folder, last) is not None:
                return
            temporary = _temporary_name()
            try:
                _link_or_copy(source, folder, temporary)
                os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                _remove(folder, temporary)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself; nothing if there is none. Raises ChannelError for a folder."""
        parent, _slash, last = name.rpartition("/")
        with contextlib.suppress(FileNotFoundError), self.folder(parent) as folder, self.reported(name):
            os.unlink(last, dir_fd=folder)

    def remove_leftovers(self, name: str = "") -> list[str]:
        """Delete what killed writers left in a folder (only our temporary names); returns their names."""
        left = [one for one in self.names(name) if one.startswith(TEMPORARY_PREFIX)]
        if left:
            with self.folder(name) as folder:
                for one in left:
                    _remove(folder, one)
        return left

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        descriptor = os.open(self.root, FOLDER_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def unexpected(self, name: str, kind: str, expected: str = "a regular file") -> ChannelError:
        """The error for a name that has something else than it should."""
        return ChannelError(f"{self.path / name}: is {kind}; expected {expected}", hint=_REPAIR)

    @contextlib.contextmanager
    def reported(self, name: str) -> Iterator[None]:
        """Turn the errors of the system into those of this program, except for a missing file and a lack of means."""
        try:
            yield
        except FileNotFoundError:
            raise
        except LinkError as err:
            raise ChannelError(f"{self.path / name}: {err.strerror}", hint=_REPAIR) from None
        except OSError as err:
            if err.errno in NO_MEANS_ERRNOS:
                raise
            if err.errno == errno.ENOTDIR:
                raise self._no_folder(name) from None
            if err.errno in {errno.EISDIR, errno.ELOOP}:
                kind = "a folder" if err.errno == errno.EISDIR else "a symbolic link"
                raise self.unexpected(name, kind) from None
            raise error_from_os(OSError(err.errno, err.strerror, str(self.path / name))) from err

    def _no_folder(self, name: str) -> ChannelError:
        """The error for a name whose folder, or that itself, is no folder; it says which part of it."""
        parts = self._full(name).split("/")
        for count in range(1, len(parts) + 1):
            part = Beneath(root=self.root, inside="/".join(parts[:count]))
            with contextlib.suppress(OSError), part._root() as root:
                descriptor = open_below(root, part.inside, os.O_PATH | os.O_CLOEXEC)
                try:
                    mode = os.fstat(descriptor).st_mode
                finally:
                    os.close(descriptor)
                if not stat.S_ISDIR(mode):
                    return ChannelError(f"{part.path}: is {kind_of(mode) or 'a file'}; expected a folder", hint=_REPAIR)
        return ChannelError(f"{self.path / name}: its folder changed while it was opened", hint="try again")


class Staged:
    """Files that were written beside their destinations, see Beneath.staged."""

    def __init__(self, beneath: Beneath, stack: contextlib.ExitStack) -> None:
        self._beneath = beneath
        self._stack = stack
        self._folders: dict[str, int] = {}
        self._moves: collections.deque[tuple[int, str, str]] = collections.deque()

    def add(self, name: str, content: bytes) -> None:
        """Write one file; several of one name are put in place in this order."""
        parent, _slash, _last = name.rpartition("/")
        if parent not in self._folders:
            self._folders[parent] = self._stack.enter_context(self._beneath.folder(parent, make=True))
        temporary = _temporary_name()
        self._moves.append((self._folders[parent], temporary, name))
        with self._beneath.reported(name):
            _write_new(self._folders[parent], temporary, content)

    def sync(self) -> None:
        """Flush them to the disk, many of them together instead of one by one."""
        if len(self._moves) > SYNC_EACH_LIMIT:
            os.sync()
            return
        for folder, temporary, name in self._moves:
            with self._beneath.reported(name):
                descriptor = os.open(temporary, _FILE_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def put_in_place(self) -> None:
        """Rename them, in order. Raises ChannelError instead of replacing anything but a regular file or a link."""
        while self._moves:
            self._put_next()

    def _put_next(self) -> None:
        folder, temporary, name = self._moves[0]
        last = name.rpartition("/")[2]
        with self._beneath.reported(name):
            status = _status_at(folder, last)
            if status is not None and (kind := kind_of(status.st_mode)) is not None:
                raise self._beneath.unexpected(name, kind)
            os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
        self._moves.popleft()

    def discard(self) -> None:
        """Remove those that were not put in place."""
        for folder, temporary, _name in self._moves:
            _remove(folder, temporary)
        self._moves.clear()


def _temporary_name() -> str:
    return TEMPORARY_PREFIX + secrets.token_hex(8)


def _status_at(folder: int, name: str) -> os.stat_result | None:
    """The status of a name in an open folder, of a link itself; None if there is nothing."""
    with contextlib.suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def _made(root: int, name: str) -> int:
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


def _write_new(folder: int, name: str, content: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE, dir_fd=folder)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _read_at_most(stream: IO[bytes], amount: int) -> bytes:
    """At most ``amount`` bytes of an unbuffered stream; fewer only at its end."""
    pieces: list[bytes] = []
    while amount and (piece := stream.read(min(amount, _PIECE_BYTES))):
        pieces.append(piece)
        amount -= len(piece)
    return b"".join(pieces)


def _link_or_copy(source: IO[bytes], folder: int, name: str) -> None:
    try:
        os.link(f"/proc/self/fd/{source.fileno()}", name, dst_dir_fd=folder, follow_symlinks=True)
    except OSError as err:
        if err.errno not in {*NO_LINK_ERRNOS, errno.ENOENT}:  # ENOENT: /proc is not mounted, or the file was deleted
            raise
        source.seek(0)
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE, dir_fd=folder)
        with os.fdopen(descriptor, "wb", buffering=0) as copy:
            shutil.copyfileobj(source, copy, _PIECE_BYTES)
            os.fsync(copy.fileno())


def _remove(folder: int, name: str) -> None:
    """Remove a file or a whole folder, nothing outside it; what cannot be removed stays."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)
