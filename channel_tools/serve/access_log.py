# SPDX-License-Identifier: BSD-3-Clause
"""The access log in JSON lines, without secrets.

Lines are collected and written together, only whole lines at a time, so that processes can share the file. A log that
is a pipe is opened so that no request waits for its reader. What could not be written is counted in a line of its own
once the file takes lines again.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_GATHERED_BYTES = 512 << 10
"""This many are written without waiting for a flush."""


class AccessLog:
    """Writes lines to an open file descriptor."""

    def __init__(self, descriptor: int, *, clock: Callable[[], float] = time.time) -> None:
        self._descriptor = descriptor
        self._lost = 0
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._gathered = 0
        self._torn = False
        self._second, self._second_text = -1, ""

    def add(
        self, client: str, method: str, path: str, *, status: int, size_bytes: int, seconds: float, token: str | None
    ) -> None:
        """Log a request whose response is complete. ``path`` is masked, without query; ``token`` is the token's id."""
        entry = {
            "time": self._now(),
            "client": client,
            "method": method,
            "path": path,
            "status": status,
            "bytes": size_bytes,
            "seconds": round(seconds, 6),
            "token": token,
        }
        line = self._encoder.encode(entry)
        self._lines.append(line)
        self._gathered += len(line)
        if self._gathered > _GATHERED_BYTES:
            self.flush()

    def _now(self) -> str:
        now_s = self._clock()
        if (second := int(now_s)) != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{int(now_s % 1 * 1000):03}Z"

    def flush(self) -> None:
        """Write the collected lines; on a full disk, or to a pipe that nobody reads, only log lines are lost."""
        lines, self._lines, self._gathered = self._lines, [], 0
        if not lines:
            return
        before = self._lost
        if before:
            lines.insert(0, self._encoder.encode({"time": self._now(), "lost": before}))
        begin = b"\n" if self._torn else b""  # the rest of a line that did not fit stays a line of its own
        text = begin + b"\n".join(lines) + b"\n"
        written = 0
        with contextlib.suppress(OSError):
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
        self._torn = text[written - 1 : written] != b"\n" if written else self._torn
        lost = min(len(lines), text.count(b"\n", written))
        self._lost = before + lost - 1 if before and lost == len(lines) else lost
