# SPDX-License-Identifier: BSD-3-Clause
"""Timing of requests: time limits, and pauses between attempts."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class TransientError(Exception):
    """A request failed in a way that a retry may avoid; the message contains no address and no secret."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooSlowError(TransientError):
    """The server sends almost nothing; the received bytes do not count as progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """How long the client waits: to connect, between two reads, and for a body that is sent too slowly.

    A body counts as stalled if less than ``slowest_bytes_per_s`` were received over more than ``read_s`` of waiting.
    """

    connect_s: float = 15.0
    read_s: float = 30.0
    slowest_bytes_per_s: float = 1000.0


@dataclass(kw_only=True, slots=True)
class Arrivals:
    """Counts what arrives, and how long was waited for it."""

    timeouts: Timeouts
    _waited_s: float = field(default=0.0, init=False)
    _received: int = field(default=0, init=False)

    def read(self, read: Callable[[], bytes]) -> bytes:
        """What ``read`` returns. Raises TooSlowError for a body that counts as stalled."""
        asked_at = time.monotonic()
        chunk = read()
        self._waited_s += time.monotonic() - asked_at
        self._received += len(chunk)
        slowest = self._waited_s * self.timeouts.slowest_bytes_per_s
        if chunk and self._waited_s > self.timeouts.read_s and self._received < slowest:
            raise TooSlowError(f"only {self._received} bytes were received in {self._waited_s:.0f} s")
        return chunk


@dataclass(kw_only=True, slots=True)
class _Wait:
    until_s: float
    sock: socket.socket
    is_over: bool = False


class Watch:
    """Ends reads that go on for too long although bytes arrive.

    The time limit of a socket is for each piece that arrives; headers, and the lines between the chunks of a body, are
    read to their end without another one.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._waits: dict[int, _Wait] = {}
        self._is_looked_at = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def over(self, sock: socket.socket | None) -> Iterator[None]:
        """Raise TimeoutError if the block, which reads from ``sock``, takes longer than the limit."""
        if sock is None:  # of a response without a body
            yield
            return
        wait = _Wait(until_s=time.monotonic() + self._limit_s, sock=sock)
        with self._lock:
            self._waits[id(wait)] = wait
            if not self._is_looked_at:  # one thread for all reads, however many pieces they are of
                self._is_looked_at = True
                threading.Thread(target=self._look, name="watch", daemon=True).start()
        try:
            yield
        except Exception:
            if not wait.is_over:
                raise
        finally:
            with self._lock:
                del self._waits[id(wait)]
        if wait.is_over:  # what had been read then may look like a whole
            raise TimeoutError(f"what it sends does not end within {self._limit_s:g} s")

    def _look(self) -> None:
        """Shut down what is read for too long, as long as anything is read."""
        while True:
            time.sleep(self._limit_s / 8)
            with self._lock:
                if not self._waits:
                    self._is_looked_at = False
                    return
                for wait in self._waits.values():
                    if time.monotonic() > wait.until_s:
                        wait.is_over = True
                        with contextlib.suppress(OSError):
                            # not the method of a TLS socket, which is for the thread that reads from it
                            socket.socket.shutdown(wait.sock, socket.SHUT_RDWR)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often a request is tried, and the pauses in between: doubling, with jitter, or as the server asks."""

    attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    longest_retry_after_s: float = 120.0
    """If a server asks for a longer pause, the request fails at once."""

    def wait_s(self, failures: int, retry_after_s: float = 0.0) -> float:
        """How long to wait after this many failures in a row; 0 after none."""
        backoff_s = min(self.longest_wait_s, self.first_wait_s * 2 ** (failures - 1)) if failures else 0.0
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - no secret: so that clients do not all come back at once
        return max(backoff_s * jitter, retry_after_s)

    def is_last(self, failures: int, retry_after_s: float = 0.0) -> bool:
        """Whether to give up after this many failures in a row."""
        return failures >= self.attempts or retry_after_s > self.longest_retry_after_s


def retry_after_s(headers: Mapping[str, str], *, now: datetime | None = None) -> float:
    """How long the server's Retry-After (seconds or a date) asks to wait; 0 without one."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    moment = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
