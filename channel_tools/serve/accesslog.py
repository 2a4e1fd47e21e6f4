# SPDX-License-Identifier: BSD-3-Clause
"""The access log: one JSON object per line, without secrets.

Lines are gathered and written together, whole lines at a time, so that several processes may share the file.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_GATHERED_BYTES = 32 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One answered request. ``path`` is masked and has no query, ``token`` is the id of the token that was used."""

    time: str
    client: str
    method: str
    path: str
    status: int
    bytes: int
    seconds: float
    token: str | None


class AccessLog:
    """Writes entries to an open file descriptor; None writes nothing."""

    def __init__(self, descriptor: int | None, *, clock: Callable[[], float] = time.time) -> None:
        self._descriptor = descriptor
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._gathered = 0

    def add(
        self, client: str, method: str, path: str, *, status: int, size_bytes: int, seconds: float, token: str | None
    ) -> None:
        """Note one answered request."""
        if self._descriptor is None:
            return
        now_s = self._clock()
        entry = Entry(
            time=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03}Z",
            client=client,
            method=method,
            path=path,
            status=status,
            bytes=size_bytes,
            seconds=round(seconds, 6),
            token=token,
        )
        line = self._encoder.encode(entry)
        self._lines.append(line)
        self._gathered += len(line)
        if self._gathered > _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was gathered; a full disk loses lines of the log and nothing else."""
        lines, self._lines, self._gathered = self._lines, [], 0
        if not lines or self._descriptor is None:
            return
        try:
            os.write(self._descriptor, b"\n".join(lines) + b"\n")
        except OSError:
            return
