# SPDX-License-Identifier: BSD-3-Clause
"""Hashes of bytes that are read anyway."""

from __future__ import annotations

import hashlib
from typing import IO, Protocol

_CHUNK_BYTES = 1 << 18


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
