# SPDX-License-Identifier: BSD-3-Clause
"""The served files: found beneath their channel's folder, and kept with the headers of their responses.

A file is checked (lstat) on every request and read again if it was replaced, so what is published is seen at once and
the server need not be notified. It is opened beneath its channel's folder (system/beneath.py), and what was opened is
what is kept and sent: a link that is exchanged meanwhile changes nothing. The cache is bounded by bytes.
"""

from __future__ import annotations

import email.utils
import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelToolsError, raise_without_means

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.serve.addresses import ChannelFile


Headers = list[tuple[bytes, bytes]]
Signature = tuple[int, int, int, int, int]

_CONTENT_TYPES = {
    ".json": b"application/json",
    ".html": b"text/html; charset=utf-8",
    ".xml": b"application/xml",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
}
_OTHER_CONTENT_TYPE = b"application/octet-stream"
_A_YEAR_S = 365 * 24 * 3600
IN_MEMORY_LIMIT_BYTES = 64 << 10
"""For one file or response: what a client has not yet taken stays in memory, and there may be a thousand clients."""
DEFAULT_MEMORY_BYTES = 32 << 20
_ENTRIES_LIMIT = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedFile:
    """One state of a file. ``content`` is None if it is too big to be kept in memory."""

    path: str
    signature: Signature
    size_bytes: int
    etag: bytes
    modified: bytes
    content_type: bytes
    validators: tuple[Headers, Headers]
    """The headers of every response for the file, for a private and for a public channel."""
    whole_headers: tuple[Headers, Headers]
    """The headers of a response with the whole file, for a private and for a public channel."""
    content: bytes | None
    never_changes: bool
    """As of its ChannelFile."""


class FileCache:
    """The served files of one process below ``root``, the folder of all channels."""

    def __init__(self, root: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._root = str(root)
        self._channels = root
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._files: OrderedDict[ChannelFile, CachedFile] = OrderedDict()

    def find(self, channel_file: ChannelFile) -> CachedFile | None:
        """The file in its present state; None if there is no such file that may be served.

        Raises WithoutMeansError if it cannot be read now.
        """
        cached = self._files.get(channel_file)
        path = cached.path if cached is not None else "/".join((self._root, *channel_file.parts))
        try:
            status = os.lstat(path)
        except OSError as err:
            raise_without_means(err)
            self._forget(channel_file)
            return None
        if cached is not None and cached.signature == signature_of(status):
            self._files.move_to_end(channel_file)
            return cached
        self._forget(channel_file)
        return self._load(channel_file, path)

    def _load(self, channel_file: ChannelFile, path: str) -> CachedFile | None:
        channel, *below = channel_file.parts
        try:
            descriptor = Beneath(root=self._channels / channel).open_file("/".join(below))
        except ChannelToolsError:
            return None
        except OSError as err:
            raise_without_means(err)
            return None
        try:
            status = os.fstat(descriptor)
            small = status.st_size <= IN_MEMORY_LIMIT_BYTES
            content = os.read(descriptor, status.st_size + 1) if small else None
        except OSError as err:
            raise_without_means(err)
            return None
        finally:
            os.close(descriptor)
        if content is not None and len(content) != status.st_size:
            return None  # another program is writing it in place
        file = _cached_file(path, status, content, never_changes=channel_file.never_changes)
        self._files[channel_file] = file
        self._used_bytes += _weight(file)
        while self._used_bytes > self._memory_bytes or len(self._files) > _ENTRIES_LIMIT:
            self._forget(next(iter(self._files)))
        return file

    def _forget(self, channel_file: ChannelFile) -> None:
        file = self._files.pop(channel_file, None)
        if file is not None:
            self._used_bytes -= _weight(file)


def _cached_file(path: str, status: os.stat_result, content: bytes | None, *, never_changes: bool) -> CachedFile:
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'.encode()
    modified = email.utils.formatdate(status.st_mtime, usegmt=True).encode()
    content_type = _CONTENT_TYPES.get(os.path.splitext(path)[1], _OTHER_CONTENT_TYPE)  # noqa: PTH122 - of a plain name
    length = str(status.st_size).encode()
    # clients revalidate indexes each time (a 304 is cheap); what never changes is never requested again
    lasting = b"max-age=%d, immutable" % _A_YEAR_S if never_changes else b"no-cache, max-age=0"
    private, public = (
        [(b"etag", etag), (b"last-modified", modified), (b"cache-control", b"%b, %b" % (privacy, lasting))]
        for privacy in (b"private", b"public")
    )
    body: Headers = [(b"content-type", content_type), (b"content-length", length), (b"accept-ranges", b"bytes")]
    return CachedFile(
        path=path,
        signature=signature_of(status),
        size_bytes=status.st_size,
        etag=etag,
        modified=modified,
        content_type=content_type,
        validators=(private, public),
        whole_headers=(body + private, body + public),
        content=content,
        never_changes=never_changes,
    )


def signature_of(status: os.stat_result) -> Signature:
    """A value that differs between two files and two states of one: nobody can choose an inode's time of change."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev


def _weight(file: CachedFile) -> int:
    return len(file.content or b"") + 1024


class FileReplacedError(Exception):
    """The file was replaced by another one between the check and opening it."""


def open_unchanged(file: CachedFile) -> int:
    """A descriptor of the file in the state in which it was opened beneath its channel's folder.

    It is opened by path, which takes a third of the time; that it is the same file is checked afterwards, so it does
    not matter which way the path went. Raises FileReplacedError, WithoutMeansError.
    """
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as err:
        raise_without_means(err)
        raise FileReplacedError(file.path) from err
    if signature_of(os.fstat(descriptor)) == file.signature:
        return descriptor
    os.close(descriptor)
    raise FileReplacedError(file.path)
