# SPDX-License-Identifier: BSD-3-Clause
"""The files that are served, as requests need them: validators and headers made once, small and hot contents in memory.

A file is looked at (stat) on every request and read again when it is another one, so what is published is seen at once
and the server need not be notified. Memory is bounded by bytes; big files are never read into it.
"""

from __future__ import annotations

import email.utils
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import raise_without_means

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.serve.access.addresses import ChannelFile

Headers = list[tuple[bytes, bytes]]

_CONTENT_TYPES = {
    ".json": b"application/json",
    ".html": b"text/html; charset=utf-8",
    ".xml": b"application/xml",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_OTHER_CONTENT_TYPE = b"application/octet-stream"
_A_YEAR_S = 365 * 24 * 3600
_IN_MEMORY_LIMIT_BYTES = 64 << 10
"""Of one file: what a client does not take stays in memory for it, and there may be a thousand of them."""
DEFAULT_MEMORY_BYTES = 32 << 20
_ENTRIES_LIMIT = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedFile:
    """One state of a file. ``content`` is None where it is too big to be kept in memory."""

    path: str
    signature: tuple[int, int, int]
    size_bytes: int
    etag: bytes
    modified: bytes
    content_type: bytes
    validators: tuple[Headers, Headers]
    """For a private and for a public channel: the headers of every response about the file."""
    whole: tuple[Headers, Headers]
    """Likewise: the headers of a response with the whole file."""
    content: bytes | None


class FileCache:
    """The served files of one process below ``root``, the folder of all channels."""

    def __init__(self, root: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._root = str(root)
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._files: OrderedDict[ChannelFile, CachedFile] = OrderedDict()

    def find(self, wanted: ChannelFile) -> CachedFile | None:
        """The file as it is now; None where there is none that may be served.

        Raises WithoutMeansError when it cannot be looked at now.
        """
        cached = self._files.get(wanted)
        path = cached.path if cached is not None else "/".join((self._root, *wanted.parts))
        try:
            status = os.stat(path)  # noqa: PTH116 - on every request
        except OSError as err:
            raise_without_means(err)
            self._forget(wanted)
            return None
        if cached is not None and cached.signature == signature_of(status):
            self._files.move_to_end(wanted)
            return cached
        self._forget(wanted)
        return self._load(wanted, path)

    def _load(self, wanted: ChannelFile, path: str) -> CachedFile | None:
        if not self._stays_inside(wanted, path):
            return None
        try:
            # not blocking: a named pipe in a channel's folder must not block the server
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as err:
            raise_without_means(err)
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            small = status.st_size <= _IN_MEMORY_LIMIT_BYTES
            content = os.read(descriptor, status.st_size + 1) if small else None
        finally:
            os.close(descriptor)
        if content is not None and len(content) != status.st_size:
            return None  # being written in wanted by something that is not ours
        file = _cached_file(path, status, content, never_changes=wanted.never_changes)
        self._keep(wanted, file)
        return file

    def _stays_inside(self, wanted: ChannelFile, path: str) -> bool:
        """Whether the path, its links followed, is in its channel's folder, but not in our records there."""
        channel = os.path.realpath(f"{self._root}/{wanted.channel}")
        real = os.path.realpath(path)
        return real.startswith(channel + "/") and "/." not in real[len(channel) :]

    def _keep(self, wanted: ChannelFile, file: CachedFile) -> None:
        self._files[wanted] = file
        self._used_bytes += _weight(file)
        while self._used_bytes > self._memory_bytes or len(self._files) > _ENTRIES_LIMIT:
            self._forget(next(iter(self._files)))

    def _forget(self, wanted: ChannelFile) -> None:
        file = self._files.pop(wanted, None)
        if file is not None:
            self._used_bytes -= _weight(file)


def _cached_file(path: str, status: os.stat_result, content: bytes | None, *, never_changes: bool) -> CachedFile:
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'.encode()
    modified = email.utils.formatdate(status.st_mtime, usegmt=True).encode()
    content_type = _CONTENT_TYPES.get(os.path.splitext(path)[1], _OTHER_CONTENT_TYPE)  # noqa: PTH122 - of a plain name
    length = str(status.st_size).encode()
    validators = (
        _validators(etag, modified, _cache_control(b"private", never_changes=never_changes)),
        _validators(etag, modified, _cache_control(b"public", never_changes=never_changes)),
    )
    body: Headers = [(b"content-type", content_type), (b"content-length", length), (b"accept-ranges", b"bytes")]
    return CachedFile(
        path=path,
        signature=signature_of(status),
        size_bytes=status.st_size,
        etag=etag,
        modified=modified,
        content_type=content_type,
        validators=validators,
        whole=(body + validators[0], body + validators[1]),
        content=content,
    )


def _validators(etag: bytes, modified: bytes, cache_control: bytes) -> Headers:
    return [(b"etag", etag), (b"last-modified", modified), (b"cache-control", cache_control)]


def _cache_control(privacy: bytes, *, never_changes: bool) -> bytes:
    """Indexes are asked for again each time (a 304 is cheap); what never changes is never asked for again."""
    return privacy + (b", max-age=%d, immutable" % _A_YEAR_S if never_changes else b", no-cache")


def signature_of(status: os.stat_result) -> tuple[int, int, int]:
    """What tells two states of a file apart."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _weight(file: CachedFile) -> int:
    return len(file.content or b"") + 1024
