# SPDX-License-Identifier: BSD-3-Clause
"""What is recorded about requests: counters for Prometheus, and the access log in JSON lines, without secrets.

Several processes serve one address. Their counters are in shared memory from before they were forked, each in its own
slot, and are added up on request: a killed process leaves no file behind, and a full disk does not stop the counting.
A process that replaces another continues in its slot.

Log lines are collected and written together, only whole lines at a time, so that processes can share the file. A log
that is a pipe is opened so that no request waits for its reader.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.system.errors import ChannelToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import CounterMetricFamily

Event = Literal["job_failed", "job_quarantined", "log_line_lost", "step_failed"]
_EVENTS: tuple[Event, ...] = Event.__args__  # type: ignore[attr-defined]
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "other")
_KINDS = ("package", "index", "other")
_STATUSES = 600
_FIGURES = 3
"""Requests, bytes, seconds."""
_SLOT = len(_METHODS) * len(_KINDS) * _STATUSES * _FIGURES + len(_EVENTS)
_DOUBLE_BYTES = 8
_GATHERED_BYTES = 512 << 10
"""This many are written without waiting for a flush."""


class Metrics:
    """The counters of a server; none of them contains names of channels, packages or tokens."""

    def __init__(self, slots: int) -> None:
        """Make counters for this many processes, which are forked from this one."""
        self._slots = slots
        self._taken = os.memfd_create("slots")  # open until the process ends; byte n is locked by who has slot n
        self._memory = mmap.mmap(-1, slots * _SLOT * _DOUBLE_BYTES)
        self._counts = memoryview(self._memory).cast("d")
        self._own = 0
        self._methods = {name: number for number, name in enumerate(_METHODS)}
        self._kinds = {name: number for number, name in enumerate(_KINDS)}
        self._events = {name: _SLOT - len(_EVENTS) + number for number, name in enumerate(_EVENTS)}

    def take_slot(self) -> None:
        """Count in a slot that no other living process has, from now on (in the first until then).

        Raises ChannelToolsError if there are more processes than slots.
        """
        for slot in range(1, self._slots):
            try:
                fcntl.lockf(self._taken, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)  # the system frees it at our end
            except OSError as err:
                if err.errno not in {errno.EACCES, errno.EAGAIN}:
                    raise
            else:
                self._own = slot * _SLOT
                return
        raise ChannelToolsError(f"all {self._slots} slots of the metrics are taken")

    def count(self, method: str, kind: str, status: int, *, size_bytes: int, seconds: float) -> None:
        """Count a request whose response is complete."""
        row = self._methods.get(method, len(_METHODS) - 1) * len(_KINDS) + self._kinds[kind]
        position = self._own + (row * _STATUSES + status) * _FIGURES
        counts = self._counts
        counts[position] += 1
        counts[position + 1] += size_bytes
        counts[position + 2] += seconds

    def count_event(self, event: Event, count: int = 1) -> None:
        """Count an event other than a request."""
        self._counts[self._own + self._events[event]] += count

    def exposition(self) -> tuple[bytes, str]:
        """The counters of all processes in Prometheus' text format, and its content type."""
        import prometheus_client  # noqa: PLC0415 - rarely needed

        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Called by Prometheus' registry."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - likewise

        sums = self._sums()
        names = ("requests", "sent_bytes", "answering_seconds")
        helps = ("Answered requests.", "Bytes of bodies sent.", "Time from request to last byte of the response.")
        for figure, (name, text) in enumerate(zip(names, helps, strict=True)):
            family = CounterMetricFamily(f"channel_tools_{name}", text, labels=("method", "kind", "status"))
            for position in range(0, _SLOT - len(_EVENTS), _FIGURES):
                if sums[position]:
                    row, status = divmod(position // _FIGURES, _STATUSES)
                    method, kind = divmod(row, len(_KINDS))
                    family.add_metric((_METHODS[method], _KINDS[kind], str(status)), sums[position + figure])
            yield family
        family = CounterMetricFamily("channel_tools_events", "Events other than requests.", labels=("event",))
        for event, position in self._events.items():
            family.add_metric((event,), sums[position])
        yield family

    def _sums(self) -> list[float]:
        """The counters of all slots, added up."""
        sums = [0.0] * _SLOT
        for begin in range(0, len(self._counts), _SLOT):
            for position, count in enumerate(self._counts[begin : begin + _SLOT]):
                if count:
                    sums[position] += count
        return sums


class AccessLog:
    """Writes lines to an open file descriptor."""

    def __init__(self, descriptor: int, *, lost: Callable[[int], None], clock: Callable[[], float] = time.time) -> None:
        """``lost`` is called with the number of lines that could not be written."""
        self._descriptor = descriptor
        self._lost = lost
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
        now_s = self._clock()
        if (second := int(now_s)) != self._second:
            self._second, self._second_text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        entry = {
            "time": f"{self._second_text}.{int(now_s % 1 * 1000):03}Z",
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
        """Write the collected lines; on a full disk, or to a pipe that nobody reads, only log lines are lost."""
        lines, self._lines, self._gathered = self._lines, [], 0
        if not lines:
            return
        begin = b"\n" if self._torn else b""  # the rest of a line that did not fit stays a line of its own
        text = begin + b"\n".join(lines) + b"\n"
        written = 0
        with contextlib.suppress(OSError):
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
        self._torn = text[written - 1 : written] != b"\n" if written else self._torn
        if lost := min(len(lines), text.count(b"\n", written)):
            self._lost(lost)
