# SPDX-License-Identifier: BSD-3-Clause
"""A limit on bytes per second that several threads share."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST_S = 0.1


class RateLimit:
    """A token bucket: ``spend`` waits until as many bytes may go; at most a tenth of a second's worth goes at once."""

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
        """A good size of one transfer under this limit."""
        return max(1, int(self._rate * _BURST_S))

    def spend(self, amount: int) -> None:
        """Account for ``amount`` bytes, and wait while the rate is exceeded."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now - _BURST_S) + amount / self._rate
            wait_s = self._free_at - now
        if wait_s > 0:
            self._sleep(wait_s)
