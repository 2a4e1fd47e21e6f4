# SPDX-License-Identifier: BSD-3-Clause
"""What the server counts, for Prometheus, over all of its processes.

Several processes answer at one address, so their counts are kept in files of one folder and added up when they are
asked for; prometheus-client does both, once its environment variable is set before it is imported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(slots=True)
class _Sum:
    """What was counted since the last flush."""

    requests: int = 0
    size_bytes: int = 0
    seconds: float = 0.0


class Metrics:
    """The counters of one process; names of channels, packages or tokens are in none of them."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the same for all processes of one server and empty when the first of them starts."""
        os.environ[FOLDER_VARIABLE] = str(folder)
        import prometheus_client  # noqa: PLC0415 - it reads the variable when it is imported
        import prometheus_client.multiprocess  # noqa: PLC0415

        self._library = prometheus_client
        self._folder = str(folder)
        registry = prometheus_client.CollectorRegistry()
        labels = ("method", "kind", "status")
        self._requests = prometheus_client.Counter(
            "channel_tools_requests", "Answered requests.", labels, registry=registry
        )
        self._bytes = prometheus_client.Counter(
            "channel_tools_sent_bytes", "Bytes of bodies sent.", labels, registry=registry
        )
        self._seconds = prometheus_client.Counter(
            "channel_tools_answering_seconds", "Time from requests to last bytes.", labels, registry=registry
        )
        self._sums: dict[tuple[str, str, int], _Sum] = {}

    def count(self, method: str, kind: str, status: int, *, size_bytes: int, seconds: float) -> None:
        """Count one answered request."""
        found = self._sums.get((method, kind, status))
        if found is None:
            found = self._sums[method, kind, status] = _Sum()
        found.requests += 1
        found.size_bytes += size_bytes
        found.seconds += seconds

    def flush(self) -> None:
        """Let the other processes know; a few times a second, since it costs more than counting does."""
        sums, self._sums = self._sums, {}
        for (method, kind, status), found in sums.items():
            labels = (method, kind, str(status))
            self._requests.labels(*labels).inc(found.requests)
            self._bytes.labels(*labels).inc(found.size_bytes)
            self._seconds.labels(*labels).inc(found.seconds)

    def exposition(self) -> tuple[bytes, str]:
        """The counts of all processes in Prometheus' text format, and its content type."""
        self.flush()
        registry = self._library.CollectorRegistry()
        self._library.multiprocess.MultiProcessCollector(registry, path=self._folder)  # type: ignore[no-untyped-call]
        return self._library.generate_latest(registry), self._library.CONTENT_TYPE_LATEST

    def process_ended(self, process_id: int) -> None:
        """Forget what holds only while a process lives."""
        self._library.multiprocess.mark_process_dead(process_id, path=self._folder)  # type: ignore[no-untyped-call]
