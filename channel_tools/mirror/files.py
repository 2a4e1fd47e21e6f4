# SPDX-License-Identifier: BSD-3-Clause
"""A bundle on disk, as a folder or tar file: names, sizes and streams. Nothing is trusted or verified here.

The tar file is uncompressed, since its members are compressed. The reader accepts only headers of regular files, and
GNU's for names that are too long for one, and parses them itself: so no member can escape the folder, replace another,
or make the reader allocate more than a few blocks.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import tarfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from channel_tools.mirror.format import COPY_AGAIN, METADATA_FOLDER, BundleRejectedError, is_safe_path
from channel_tools.system.archives import Window
from channel_tools.system.beneath import Beneath
from channel_tools.system.counting import counted
from channel_tools.system.errors import ChannelError, DiskFullError, FileAccessError, UsageError
from channel_tools.system.files import open_regular
from channel_tools.system.tarstream import tar_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

_BLOCK = tarfile.BLOCKSIZE
_END_BLOCKS = 2
_OCTAL_LIMIT = 8**11
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)
_RESERVE_BYTES = 16 << 20
_TOO_LARGE_HINT = (
    "the medium's file system does not allow files of this size: write the bundle to a folder, or reformat the medium"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleReader:
    """A bundle's files by their path in it; ``offsets`` are where they start in a tar file, None for a folder."""

    path: Path
    sizes: Mapping[str, int]
    offsets: Mapping[str, int] | None = None

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """One file as a stream; no link leads out of the bundle. Raises BundleRejectedError if it cannot be opened."""
        if self.offsets is not None:
            with open_regular(self.path) as archive:
                yield io.BufferedReader(Window(cast("IO[bytes]", archive.raw), self.offsets[name], self.sizes[name]))
            return
        with contextlib.ExitStack() as stack:
            try:
                stream = stack.enter_context(Beneath(root=self.path).opened(name))
            except (OSError, ChannelError, FileAccessError) as err:
                reason = (err.strerror or "") if isinstance(err, OSError) else err.message
                raise bundle_damaged(self.path / name, f"cannot be read: {reason}") from None
            yield stream

    def read(self, stream: IO[bytes], amount: int) -> bytes:
        """At most ``amount`` bytes of an opened file. Raises BundleRejectedError if the medium fails."""
        try:
            return stream.read(amount)
        except OSError as err:
            raise bundle_damaged(self.path, f"cannot be read: {err.strerror}") from err


def bundle_damaged(where: Path, reason: str) -> BundleRejectedError:
    """The error for a bundle that cannot be read."""
    return BundleRejectedError("damaged", f"{where}: {reason}", hint=COPY_AGAIN)


def open_bundle(path: Path) -> BundleReader:
    """The bundle at ``path``. Raises UsageError if there is none, BundleRejectedError if it has forbidden files."""
    if path.is_dir():
        reader = BundleReader(path=path, sizes=dict(_walk(path)))
    elif path.is_file():
        members = read_members(path)
        sizes = {name: member.size_bytes for name, member in members.items()}
        offsets = {name: member.offset for name, member in members.items()}
        reader = BundleReader(path=path, sizes=sizes, offsets=offsets)
    else:
        raise UsageError(f"{path}: there is no such file or folder", hint="channel_tools mirror create makes a bundle")
    if f"{METADATA_FOLDER}/timestamp.json" not in reader.sizes:
        raise bundle_damaged(path, f"not a bundle: {METADATA_FOLDER}/timestamp.json is missing")
    return reader


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    for name, status in Beneath(root=folder).walk():
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            message = f"{folder / name}: not a regular file; a bundle may contain only regular files"
            raise BundleRejectedError("unsafe", message)
        if not is_safe_path(name):
            raise BundleRejectedError("added", f"{folder / name}: a bundle cannot contain a file of this name")
        yield name, status.st_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """The position of a file's bytes in a tar file."""

    offset: int
    size_bytes: int


def write_members(destination: IO[bytes], members: Iterable[tuple[str, AbstractContextManager[IO[bytes]]]]) -> None:
    """Write files, as ``(path, file to open)``, to a tar file in this order; the same files give the same bytes."""
    for name, file in members:
        with file as stream:
            size_bytes = os.fstat(stream.fileno()).st_size
            destination.write(_header(name, size_bytes))
            shutil.copyfileobj(stream, destination, 1 << 20)
            destination.write(b"\0" * (-size_bytes % _BLOCK))
    destination.write(b"\0" * (_END_BLOCKS * _BLOCK))


def _header(name: str, size_bytes: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    if size_bytes < _OCTAL_LIMIT:
        try:
            return info.tobuf(tarfile.USTAR_FORMAT)
        except ValueError:  # its name is too long for the standard format
            pass
    return info.tobuf(tarfile.GNU_FORMAT)


def read_members(file: Path) -> dict[str, Member]:
    """The files in a tar file, by path. Raises BundleRejectedError unless all are regular, complete and safe."""
    members: dict[str, Member] = {}
    with open_regular(file) as stream:
        size_bytes = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        try:
            for info, _content in tar_members(stream, file=stream):
                if info.type not in _PLAIN:
                    raise BundleRejectedError("unsafe", f"{file}: member {info.name!r} is not a regular file")
                if not is_safe_path(info.name):
                    raise BundleRejectedError("unsafe", f"{file}: member {info.name!r} has a name that is not allowed")
                if info.name in members:
                    raise BundleRejectedError("unsafe", f"{file}: member {info.name!r} occurs twice")
                if info.offset_data + info.size > size_bytes:
                    raise bundle_damaged(file, f"ends within {info.name}: it is cut short")
                members[info.name] = Member(offset=info.offset_data, size_bytes=info.size)
        except tarfile.ReadError as err:
            raise bundle_damaged(file, f"after {counted(len(members), 'file')}: {err}") from None
    return members


@contextlib.contextmanager
def unusable_reported(folder: Path) -> Iterator[None]:
    """Turn the operating system's errors in writing to ``folder`` into a UsageError, except for a full disk."""
    try:
        yield
    except OSError as err:
        if err.errno in {errno.ENOSPC, errno.EDQUOT} or err.errno is None:
            raise
        message = f"{err.filename or folder}: cannot be written: {err.strerror}"
        hint = _TOO_LARGE_HINT if err.errno == errno.EFBIG else f"make {folder} writable, or choose another place"
        raise UsageError(message, hint=hint) from err


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFullError unless the file system of ``folder`` has ``needed_bytes`` free."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _RESERVE_BYTES:
        message = f"{folder.parent}: needs {needed_bytes} bytes, but only {free} are free; nothing was written"
        raise DiskFullError(message, hint="free space there, or choose another place")
