# SPDX-License-Identifier: BSD-3-Clause
"""Timing of requests: time limits, pauses between attempts, and a limit on bytes per second."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BURST_S = 0.1


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


class RateLimit:
    """A token bucket shared by threads: at most a tenth of a second's worth is spent at once."""

    def __init__(
        self,
        bytes_per_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = clock()

    @property
    def chunk_bytes(self) -> int:
        """A suitable size of one transfer under this limit."""
        return max(1, int(self._rate * _BURST_S))

    def spend(self, amount: int) -> None:
        """Account for ``amount`` bytes, and wait while the rate is exceeded."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - _BURST_S) + amount / self._rate
            wait_s = self._free_at - now
        if wait_s > 0:
            self._sleep(wait_s)


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
