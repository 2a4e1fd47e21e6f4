# SPDX-License-Identifier: BSD-3-Clause
"""What the server counts, for Prometheus, over all of its processes.

Several processes answer at one address, so their counts are kept in files of one folder and added up when they are
asked for; prometheus-client does both, once its environment variable is set before it is imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Counter, Histogram

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)


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
        self._requests = prometheus_client.Counter(
            "channel_tools_requests", "Answered requests.", ("method", "kind", "status"), registry=registry
        )
        self._bytes = prometheus_client.Counter(
            "channel_tools_sent_bytes", "Bytes of bodies sent.", ("kind",), registry=registry
        )
        self._seconds = prometheus_client.Histogram(
            "channel_tools_request_seconds", "Time to the last byte.", ("kind",), buckets=_SECONDS, registry=registry
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Counter, Histogram]] = {}

    def count(self, method: str, kind: str, status: int, *, size_bytes: int, seconds: float) -> None:
        """Count one answered request."""
        key = (method, kind, status)
        if key not in self._known:
            self._known[key] = (
                self._requests.labels(method, kind, str(status)),
                self._bytes.labels(kind),
                self._seconds.labels(kind),
            )
        requests, sent, took = self._known[key]
        requests.inc()
        sent.inc(size_bytes)
        took.observe(seconds)

    def exposition(self) -> tuple[bytes, str]:
        """The counts of all processes in Prometheus' text format, and its content type."""
        registry = self._library.CollectorRegistry()
        self._library.multiprocess.MultiProcessCollector(registry, path=self._folder)  # type: ignore[no-untyped-call]
        return self._library.generate_latest(registry), self._library.CONTENT_TYPE_LATEST

    def process_ended(self, process_id: int) -> None:
        """Forget what holds only while a process lives."""
        self._library.multiprocess.mark_process_dead(process_id, path=self._folder)  # type: ignore[no-untyped-call]
