# SPDX-License-Identifier: BSD-3-Clause
"""The files that are served, as requests need them: validators and headers made once, small and hot contents in memory.

A file is looked at (stat) on every request and read again when it is another one, so what is published is seen at once
and nothing has to be told to the server. Memory is bounded by bytes; big files are never read into it.
"""

from __future__ import annotations

import email.utils
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.serve.addresses import Place

Headers = list[tuple[bytes, bytes]]

_CONTENT_TYPES = {
    ".json": b"application/json",
    ".html": b"text/html; charset=utf-8",
    ".xml": b"application/xml",
    ".css": b"text/css",
    ".svg": b"image/svg+xml",
}
_OTHER_CONTENT_TYPE = b"application/octet-stream"
_A_YEAR_S = 365 * 24 * 3600
_INDEX_LIMIT_BYTES = 8 << 20
_SMALL_LIMIT_BYTES = 128 << 10
DEFAULT_MEMORY_BYTES = 32 << 20
_ENTRIES_LIMIT = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedFile:
    """One state of a file. ``content`` is None where it is too big to be kept in memory."""

    path: str
    signature: tuple[int, int, int]
    size_bytes: int
    etag: bytes
    modified: bytes
    content_type: bytes
    validators: tuple[Headers, Headers]
    """For a private and for a public channel: what every answer about the file carries."""
    whole: tuple[Headers, Headers]
    """Likewise: the headers of an answer with the whole file."""
    content: bytes | None


class HotFiles:
    """The served files of one process below ``root``, the folder of all channels."""

    def __init__(self, root: Path, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._root = str(root)
        self._memory_bytes = memory_bytes
        self._used_bytes = 0
        self._files: OrderedDict[Place, ServedFile] = OrderedDict()

    def find(self, place: Place) -> ServedFile | None:
        """The file at a place as it is now; None where there is none that may be served."""
        known = self._files.get(place)
        path = known.path if known is not None else "/".join((self._root, *place.parts))
        try:
            status = os.stat(path)  # noqa: PTH116 - on every request
        except OSError:
            self._forget(place)
            return None
        if known is not None and known.signature == _signature(status):
            self._files.move_to_end(place)
            return known
        self._forget(place)
        return self._load(place, path)

    def _load(self, place: Place, path: str) -> ServedFile | None:
        if not self._stays_inside(place, path):
            return None
        try:
            # not blocking: a named pipe in a channel's folder must not hold the server up
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            limit = _SMALL_LIMIT_BYTES if place.never_changes else _INDEX_LIMIT_BYTES
            content = os.read(descriptor, status.st_size + 1) if status.st_size <= limit else None
        finally:
            os.close(descriptor)
        if content is not None and len(content) != status.st_size:
            return None  # being written in place by something that is not ours
        file = _served_file(path, status, content, never_changes=place.never_changes)
        self._keep(place, file)
        return file

    def _stays_inside(self, place: Place, path: str) -> bool:
        """Whether the path, its links followed, is in its channel's folder and in none of our records there."""
        channel = os.path.realpath(f"{self._root}/{place.channel}")
        real = os.path.realpath(path)
        return real.startswith(channel + "/") and "/." not in real[len(channel) :]

    def _keep(self, place: Place, file: ServedFile) -> None:
        self._files[place] = file
        self._used_bytes += _weight(file)
        while self._used_bytes > self._memory_bytes or len(self._files) > _ENTRIES_LIMIT:
            self._forget(next(iter(self._files)))

    def _forget(self, place: Place) -> None:
        file = self._files.pop(place, None)
        if file is not None:
            self._used_bytes -= _weight(file)


def _served_file(path: str, status: os.stat_result, content: bytes | None, *, never_changes: bool) -> ServedFile:
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'.encode()
    modified = email.utils.formatdate(status.st_mtime, usegmt=True).encode()
    content_type = _CONTENT_TYPES.get(os.path.splitext(path)[1], _OTHER_CONTENT_TYPE)  # noqa: PTH122 - of a plain name
    length = str(status.st_size).encode()
    validators = (
        _validators(etag, modified, _cache_control(b"private", never_changes=never_changes)),
        _validators(etag, modified, _cache_control(b"public", never_changes=never_changes)),
    )
    body: Headers = [(b"content-type", content_type), (b"content-length", length), (b"accept-ranges", b"bytes")]
    return ServedFile(
        path=path,
        signature=_signature(status),
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


def _signature(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _weight(file: ServedFile) -> int:
    return len(file.content or b"") + 1024
