# SPDX-License-Identifier: BSD-3-Clause
"""Files below a folder that others can write to, such as a channel's: opened once, beneath it, and then used.

A check by path and a use by path can be about two files, since a link may be exchanged in between. So a name is
resolved beneath an open folder, what was opened is checked, and its descriptor is what is read or written through.

One rule for all of it: a symbolic link is followed if it is relative, stays in the folder and does not lead to a name
that begins with a dot. Any other link is an error. Only regular files are read, up to a stated number of bytes, and
only regular files are replaced (a link is replaced itself, never what it leads to).

How a name is resolved: ``system/beneath.py``. Files that belong together are written beside their destinations, and
put in place together (``Staged``).

Files in an open folder, by its descriptor: made, linked, flushed and removed, whatever path leads there by now.

Resolves a name beneath an open folder: by openat2 in one call, else part by part.

Linux resolves a name without links in one call, openat2 (since 5.6; openat2(2), RESOLVE_BENEATH). Where it has none, or
a sandbox forbids it, and for names with links, it is resolved part by part, each opened with O_NOFOLLOW.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import functools
import hashlib
import os
import secrets
import shutil
import stat
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Protocol

from channel_tools.system.errors import NO_MEANS_ERRNOS, ChannelError, error_from_os
from channel_tools.system.files import (
    NO_LINK_ERRNOS,
    SYNC_EACH_LIMIT,
    TEMPORARY_PREFIX,
    kind_of,
    open_regular,
    read_at_most,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from io import BufferedReader
    from pathlib import Path

_REPAIR = "remove it, or restore it from a copy"


FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MODE = 0o666
_PIECE_BYTES = 1 << 20


_OPENAT2 = 437
"""The number of the system call, the same on every architecture."""
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_NOT_THERE = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG})
"""How a kernel without openat2, and sandboxes that do not know it, refuse it."""
_LINKS_LIMIT = 40
"""As many links as Linux itself follows in one path (path_resolution(7))."""
FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""How a folder is opened that only names are resolved beneath."""


def folder_beneath(path: Path, *, within: Path | None = None) -> Beneath:
    """The folder ``path``, in which links must stay in ``within`` (None: in itself)."""
    return Beneath(root=path) if within is None else Beneath(root=within).at(path.relative_to(within).as_posix())


def folder_of(path: Path, within: Path | None) -> Beneath | None:
    """The folder of a file below ``within``, where others can write; None without it, for opened_in."""
    return None if within is None else folder_beneath(path.parent, within=within)


@contextlib.contextmanager
def opened_in(path: Path, folder: Beneath | None) -> Iterator[BufferedReader]:
    """A regular file; ``folder`` is the one that it is in, if others can write there (None: links are followed).

    Raises as open_regular does without ``folder``, else as Beneath.opened.
    """
    if folder is None:
        with open_regular(path) as stream:
            yield stream
        return
    with folder.opened(path.name) as stream:
        yield stream


def status_in(path: Path, folder: Beneath | None) -> os.stat_result | None:
    """The status of the regular file that opened_in would open; None if there is none. Raises as Beneath.file_stat."""
    if folder is not None:
        return folder.file_stat(path.name)
    return path.stat() if path.is_file() else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Beneath:
    """The folder ``inside`` of the folder ``root``; every name is relative to it, and links stay in ``root``.

    ``root`` itself is named by somebody who may read and write everything that this process may: its path is followed.
    Each call opens it anew, unless it is ``held``. All raise ChannelError for what is there but is not what it should
    be, FileAccessError where the system denies access, DiskFullError.
    """

    root: Path
    inside: str = ""
    descriptor: int | None = field(default=None, compare=False, repr=False)
    """That of ``root``, if it is held."""

    @property
    def path(self) -> Path:
        """The folder's path, for messages."""
        return self.root / self.inside if self.inside else self.root

    def at(self, name: str) -> Beneath:
        """A folder below this one."""
        return Beneath(root=self.root, inside=self._full(name), descriptor=self.descriptor)

    @contextlib.contextmanager
    def held(self) -> Iterator[Beneath]:
        """The same folder with its root held open while the block runs, for many calls: half of their time."""
        with self._root() as root:
            yield Beneath(root=self.root, inside=self.inside, descriptor=root)

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
        is_held = self.descriptor is not None  # no context manager: this is done for every download
        root = os.open(self.root, FOLDER_FLAGS) if self.descriptor is None else self.descriptor
        try:
            descriptor = open_below(root, self._full(name), FILE_FLAGS)
        except OSError as err:
            if err.errno != errno.ENXIO:  # a socket, or a pipe that nobody reads
                raise
            raise self.unexpected(name, "a socket") from None
        finally:
            if not is_held:
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
                content = read_at_most(stream, limit_bytes + 1)
                if (size := len(content)) <= limit_bytes:
                    return content
        message = f"{self.path / name}: has {size} bytes or more; at most {limit_bytes} are read"
        raise ChannelError(message, hint=_REPAIR)

    def sha256(self, name: str) -> str:
        """The sha256 of a regular file in hexadecimal. Raises FileNotFoundError if there is none."""
        with self.opened(name) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

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
        """The names in a folder, each with its status: that of a link itself, which ``stat`` follows."""
        with self.reported(name), contextlib.suppress(FileNotFoundError), self._root() as root:
            descriptor = open_below(root, self._full(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with os.scandir(descriptor) as entries:
                    statuses = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
            finally:
                os.close(descriptor)
            yield from statuses

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
                descriptor = made_folder(root, self._full(name))
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
            if status_at(folder, last) is not None:
                return
            temporary = temporary_name()
            try:
                link_or_copy_entry(source, folder, temporary)
                os.rename(temporary, last, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                remove_entry(folder, temporary)

    @contextlib.contextmanager
    def writing(self, name: str, *, append: bool = False) -> Iterator[IO[bytes]]:
        """A regular file as a stream to write, emptied unless ``append``; it and its folder are made.

        A link is an error.
        What is written is seen under the name at once: for files that nobody takes for complete.
        """
        descriptor = self.open_to_write(name, os.O_APPEND if append else os.O_TRUNC)
        with os.fdopen(descriptor, "ab" if append else "wb") as stream:
            yield stream

    def open_to_write(self, name: str, flags: int = 0, *, mode: int = MODE) -> int:
        """The descriptor of a regular file, to write; it (with ``mode``) and its folder are made if missing.

        A link is an error. ``flags`` are more of os.open's; with O_RDWR it can be read, too.
        """
        parent, _slash, last = name.rpartition("/")
        flags |= (0 if flags & os.O_RDWR else os.O_WRONLY) | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self.folder(parent, make=True) as folder, self.reported(name):
            self.check_replaceable(folder, name)
            descriptor = os.open(last, flags, mode, dir_fd=folder)
        if (kind := kind_of(os.fstat(descriptor).st_mode)) is not None:  # put there in between
            os.close(descriptor)
            raise self.unexpected(name, kind)
        return descriptor

    def copy(self, source: IO[bytes], name: str) -> None:
        """Replace a file by what is left of a stream, atomically and flushed to the disk; its folder is made."""
        with self.staged([]) as staged:
            staged.add(name, source)
            staged.sync()
            staged.put_in_place()

    def move(self, name: str, other: str) -> None:
        """Rename a regular file or a link, replacing one of the other name; the other folder is made."""
        parent, _slash, last = name.rpartition("/")
        other_parent, _slash, other_last = other.rpartition("/")
        with self.folder(parent) as folder, self.folder(other_parent, make=True) as other_folder, self.reported(name):
            self.check_replaceable(folder, name)
            self.check_replaceable(other_folder, other)
            os.rename(last, other_last, src_dir_fd=folder, dst_dir_fd=other_folder)

    def put_aside(self, name: str, other: str) -> None:
        """Rename what is there, of any kind, to another name in its folder, which must not exist; its time is now.

        Raises FileNotFoundError if nothing is there.
        """
        parent, _slash, last = name.rpartition("/")
        with self.folder(parent) as folder, self.reported(name):
            os.rename(last, other, src_dir_fd=folder, dst_dir_fd=folder)
            os.utime(other, dir_fd=folder, follow_symlinks=False)

    def update_times(self) -> None:
        """Set the folder's times to now. Raises FileNotFoundError if there is none."""
        with self.folder() as folder, self.reported(""):
            os.utime(folder)

    def free_bytes(self) -> int:
        """How much space the folder's file system has for this user; the folder is made if it is missing."""
        with self.folder(make=True) as folder:
            status = os.fstatvfs(folder)
            return status.f_bavail * status.f_frsize

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself; nothing if there is none. Raises ChannelError for a folder."""
        parent, _slash, last = name.rpartition("/")
        with contextlib.suppress(FileNotFoundError), self.folder(parent) as folder, self.reported(name):
            os.unlink(last, dir_fd=folder)

    def walk(self, name: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """All that is below a folder, by its name, with the status of links themselves; folders come last."""
        for entry, status in sorted(self.stats(name)):
            below = f"{name}/{entry}" if name else entry
            if stat.S_ISDIR(status.st_mode):
                yield from self.walk(below)
            yield below, status

    def sync(self, names: Sequence[str]) -> None:
        """Flush files to the disk, many of them together instead of one by one."""
        if len(names) > SYNC_EACH_LIMIT:
            os.sync()
            return
        for name in names:
            with self.opened(name) as stream:
                os.fsync(stream.fileno())

    def remove_tree(self, name: str) -> None:
        """Remove a folder with all that is in it, or a file; nothing outside it. What cannot be removed stays."""
        parent, _slash, last = name.rpartition("/")
        with contextlib.suppress(FileNotFoundError), self.folder(parent) as folder:
            remove_entry(folder, last)

    def remove_leftovers(self, name: str = "") -> list[str]:
        """Delete what killed writers left in a folder (only our temporary names); returns their names."""
        leftovers = [leftover for leftover in self.names(name) if leftover.startswith(TEMPORARY_PREFIX)]
        if leftovers:
            with self.folder(name) as folder:
                for leftover in leftovers:
                    remove_entry(folder, leftover)
        return leftovers

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        if self.descriptor is not None:
            yield self.descriptor
            return
        descriptor = os.open(self.root, FOLDER_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def check_replaceable(self, folder: int, name: str) -> None:
        """Raise ChannelError if ``name``, which is in the open folder, is neither a regular file nor a link."""
        status = status_at(folder, name.rpartition("/")[2])
        if status is not None and (kind := kind_of(status.st_mode)) is not None:
            raise self.unexpected(name, kind)

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


class Destination(Protocol):
    """The folder that files are staged in: a Beneath."""

    def folder(self, name: str = "", *, make: bool = False) -> contextlib.AbstractContextManager[int]:
        """See Beneath.folder."""

    def reported(self, name: str) -> contextlib.AbstractContextManager[None]:
        """See Beneath.reported."""

    def check_replaceable(self, folder: int, name: str) -> None:
        """See Beneath.check_replaceable."""


class Staged:
    """Files that were written beside their destinations, see Beneath.staged."""

    def __init__(self, destination: Destination, stack: contextlib.ExitStack) -> None:
        self._destination = destination
        self._stack = stack
        self._folders: dict[str, int] = {}
        self._moves: collections.deque[tuple[int, str, str]] = collections.deque()

    def add(self, name: str, content: bytes | IO[bytes]) -> None:
        """Write one file from bytes or a stream; several of one name are put in place in this order."""
        parent, _slash, _last = name.rpartition("/")
        if parent not in self._folders:
            self._folders[parent] = self._stack.enter_context(self._destination.folder(parent, make=True))
        temporary = temporary_name()
        self._moves.append((self._folders[parent], temporary, name))
        with self._destination.reported(name):
            write_new(self._folders[parent], temporary, content)

    def sync(self) -> None:
        """Flush them to the disk, many of them together instead of one by one."""
        if len(self._moves) > SYNC_EACH_LIMIT:
            os.sync()
            return
        for folder, temporary, name in self._moves:
            with self._destination.reported(name):
                sync_entry(folder, temporary)

    def put_in_place(self) -> None:
        """Rename them, in order. Raises ChannelError instead of replacing anything but a regular file or a link."""
        while self._moves:
            self._put_next()

    def _put_next(self) -> None:
        folder, temporary, name = self._moves[0]
        with self._destination.reported(name):
            self._destination.check_replaceable(folder, name)
            os.rename(temporary, name.rpartition("/")[2], src_dir_fd=folder, dst_dir_fd=folder)
        self._moves.popleft()

    def discard(self) -> None:
        """Remove those that were not put in place."""
        for folder, temporary, _name in self._moves:
            remove_entry(folder, temporary)
        self._moves.clear()


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


class _OpenHow(ctypes.Structure):
    """``struct open_how`` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_HOW_BYTES = ctypes.sizeof(_OpenHow)


@functools.cache
def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    return call


@functools.cache
def _how(flags: int) -> tuple[_OpenHow, int]:
    """How to open names without links with these flags, and where in memory that stands."""
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    return how, ctypes.addressof(how)


def _open_plainly(folder: int, name: str, flags: int) -> int | None:
    """Open a name without links by openat2; None if that is not available, or there is a link. Raises OSError."""
    descriptor = _system_call()(_OPENAT2, folder, os.fsencode(name), _how(flags)[1], _HOW_BYTES)
    if descriptor >= 0:
        return descriptor
    number = ctypes.get_errno()
    if number in _NOT_THERE or number in {errno.ELOOP, errno.EXDEV, errno.EAGAIN}:
        return None
    raise OSError(number, os.strerror(number), name)


class LinkError(OSError):
    """A symbolic link that is not followed; the text says why."""


def _open_by_parts(folder: int, name: str, flags: int) -> int:
    """Open a name part by part, following the links that the module allows. Raises OSError, LinkError."""
    stack, waiting, links, linked = [os.dup(folder)], _parts(name, linked=False), 0, False
    try:
        while waiting:
            part, linked = waiting.pop()
            if part == "..":
                os.close(stack.pop())
                if not stack:
                    raise LinkError(errno.EXDEV, "is a symbolic link out of the folder")
            elif linked and part.startswith("."):
                raise LinkError(errno.EXDEV, "is a symbolic link to a name that begins with a dot")
            elif (target := _link_at(stack[-1], part)) is not None:
                links += 1
                if links > _LINKS_LIMIT:
                    raise LinkError(errno.ELOOP, "is a circular symbolic link")
                if target.startswith("/"):
                    raise LinkError(errno.EXDEV, f"is a symbolic link to {target}, out of the folder")
                waiting += _parts(target, linked=True)
            elif waiting:
                stack.append(os.open(part, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=stack[-1]))
            else:
                return os.open(part, flags | os.O_NOFOLLOW, dir_fd=stack[-1])
        return os.open(".", flags, dir_fd=stack[-1])
    except FileNotFoundError:
        if linked:
            raise LinkError(errno.ENOENT, "is a symbolic link to something that does not exist") from None
        raise
    finally:
        for descriptor in stack:
            os.close(descriptor)


def _parts(name: str, *, linked: bool) -> list[tuple[str, bool]]:
    """The parts of a name, the last one first, each with whether a link named it."""
    return [(part, linked) for part in reversed(name.split("/")) if part not in {"", "."}]


def _link_at(folder: int, name: str) -> str | None:
    """Where the symbolic link of that name leads; None if it is none."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as err:
        if err.errno == errno.EINVAL:
            return None
        raise


def open_below(folder: int, name: str, flags: int) -> int:
    """A descriptor of ``name`` beneath the open folder. Raises OSError as os.open does, EXDEV for a link out of it."""
    if not name:
        return os.open(".", flags, dir_fd=folder)
    descriptor = _open_plainly(folder, name, flags)
    return _open_by_parts(folder, name, flags) if descriptor is None else descriptor
