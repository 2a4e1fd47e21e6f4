# SPDX-License-Identifier: BSD-3-Clause
"""What is recorded of requests: counts for Prometheus, and the access log, one JSON object per line, without secrets.

Several processes respond at one address. Their counts are in memory that they share since they were forked, each in a
place of its own, and are added up when they are asked for: no file is left behind by a process that is killed, and no
full disk ends one that counts. A process that replaces another goes on in its place.

Lines of the log are gathered and written together by a thread, whole lines at a time, so that processes may share the
file, and a disk or a reader that takes its time keeps no request waiting.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import CounterMetricFamily

Event = Literal[
    "connection_dropped", "connection_refused", "job_failed", "job_quarantined", "log_line_lost", "step_failed",
    "worker_replaced",
]  # fmt: skip
_EVENTS: tuple[Event, ...] = Event.__args__  # type: ignore[attr-defined]
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "other")
_KINDS = ("package", "index", "other")
_STATUSES = 600
_FIGURES = 3
"""Requests, bytes, seconds."""
_PLACE = len(_METHODS) * len(_KINDS) * _STATUSES * _FIGURES + len(_EVENTS)
_DOUBLE_BYTES = 8
_GATHERED_BYTES = 512 << 10
"""Written before the second is over: not less, since each time the other thread takes the interpreter's lock."""
_WAITING_LIMIT = 4
"""Pieces of _GATHERED_BYTES that may wait to be written."""
_CLOSE_S = 5.0


class Metrics:
    """The counters of a server; names of channels, packages or tokens are in none of them."""

    def __init__(self, places: int) -> None:
        """For so many processes, which are forked from this one."""
        self._memory = mmap.mmap(-1, places * _PLACE * _DOUBLE_BYTES)
        self._counts = memoryview(self._memory).cast("d")
        self._own = 0
        self._methods = {name: number for number, name in enumerate(_METHODS)}
        self._kinds = {name: number for number, name in enumerate(_KINDS)}
        self._events = {name: _PLACE - len(_EVENTS) + number for number, name in enumerate(_EVENTS)}

    def take_place(self, place: int) -> None:
        """From now on count in this place, 0 at first; one process at a time in each."""
        self._own = place * _PLACE

    def count(self, method: str, kind: str, status: int, *, size_bytes: int, seconds: float) -> None:
        """Count a request to which the response is complete."""
        row = self._methods.get(method, len(_METHODS) - 1) * len(_KINDS) + self._kinds[kind]
        position = self._own + (row * _STATUSES + status) * _FIGURES
        counts = self._counts
        counts[position] += 1
        counts[position + 1] += size_bytes
        counts[position + 2] += seconds

    def count_event(self, event: Event, count: int = 1) -> None:
        """Count what is no request."""
        self._counts[self._own + self._events[event]] += count

    def exposition(self) -> tuple[bytes, str]:
        """The counts of all processes in Prometheus' text format, and its content type."""
        import prometheus_client  # noqa: PLC0415 - few ask for it

        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[CounterMetricFamily]:
        """For Prometheus' registry."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - likewise

        sums = self._sums()
        names = ("requests", "sent_bytes", "answering_seconds")
        helps = ("Answered requests.", "Bytes of bodies sent.", "Time from requests to last bytes.")
        for figure, (name, text) in enumerate(zip(names, helps, strict=True)):
            family = CounterMetricFamily(f"channel_tools_{name}", text, labels=("method", "kind", "status"))
            for position in range(0, _PLACE - len(_EVENTS), _FIGURES):
                if sums[position]:
                    row, status = divmod(position // _FIGURES, _STATUSES)
                    method, kind = divmod(row, len(_KINDS))
                    family.add_metric((_METHODS[method], _KINDS[kind], str(status)), sums[position + figure])
            yield family
        family = CounterMetricFamily("channel_tools_events", "What is no request.", labels=("event",))
        for event, position in self._events.items():
            family.add_metric((event,), sums[position])
        yield family

    def _sums(self) -> list[float]:
        """The counts of all places, added up."""
        found = [0.0] * _PLACE
        for begin in range(0, len(self._counts), _PLACE):
            for position, count in enumerate(self._counts[begin : begin + _PLACE]):
                if count:
                    found[position] += count
        return found


class AccessLog:
    """Writes lines to an open file descriptor."""

    def __init__(self, descriptor: int, *, lost: Callable[[int], None], clock: Callable[[], float] = time.time) -> None:
        """``lost`` gets how many lines could not be written, and is called by another thread."""
        self._descriptor = descriptor
        self._lost = lost
        self._clock = clock
        self._encoder = msgspec.json.Encoder()
        self._lines: list[bytes] = []
        self._gathered = 0
        self._waiting: queue.Queue[list[bytes]] = queue.Queue(_WAITING_LIMIT)
        self._torn = False
        self._thread: threading.Thread | None = None

    def add(
        self, client: str, method: str, path: str, *, status: int, size_bytes: int, seconds: float, token: str | None
    ) -> None:
        """Log a request with a complete response. ``path`` is masked and has no query, ``token`` is its token's id."""
        now_s = self._clock()
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_s)) + f".{int(now_s % 1 * 1000):03}Z",
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

    def flush(self) -> None:
        """Have written what was gathered; a full disk loses lines of the log and nothing else."""
        lines, self._lines, self._gathered = self._lines, [], 0
        if not lines:
            return
        if self._thread is None:  # only now: it would not survive the fork of a worker
            self._thread = threading.Thread(target=self._write_all, daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(lines)
        except queue.Full:
            self._lost(len(lines))

    def close(self) -> None:
        """Write what is left, as far as it is taken within a few seconds."""
        self.flush()
        if self._thread is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put([], timeout=_CLOSE_S)
            self._thread.join(_CLOSE_S)

    def _write_all(self) -> None:
        while lines := self._waiting.get():
            self._write_all_of(lines)

    def _write_all_of(self, lines: list[bytes]) -> None:
        begin = b"\n" if self._torn else b""  # what is left of a line that found no room is a line of its own
        text = begin + b"\n".join(lines) + b"\n"
        written = self._write(text)
        self._torn = text[written - 1 : written] != b"\n" if written else self._torn
        if lost := min(len(lines), text.count(b"\n", written)):
            self._lost(lost)

    def _write(self, text: bytes) -> int:
        """How many bytes of it could be written."""
        written = 0
        with contextlib.suppress(OSError):
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
        return written
