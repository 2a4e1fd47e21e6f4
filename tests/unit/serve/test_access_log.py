# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from channel_tools.serve.access_log import AccessLog


def entry(log: AccessLog, path: str = "/") -> None:
    log.add("10.0.0.1", "GET", path, status=200, size_bytes=5, seconds=0.5, token=None)


def read(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_log_that_cannot_be_written_loses_lines_and_says_how_many(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    with Path("/dev/full").open("wb", buffering=0) as full, file.open("wb", buffering=0) as stream:
        descriptor = os.dup(full.fileno())
        log = AccessLog(descriptor, clock=lambda: 0.0)
        for path in ("/one", "/two", "/three"):
            entry(log, path)
            if path != "/one":
                log.flush()
        os.dup2(stream.fileno(), descriptor)
        entry(log, "/four")
        log.flush()
        entry(log, "/five")
        log.flush()
        os.close(descriptor)
    first, *others = read(file)
    assert first == {"time": "1970-01-01T00:00:00.000Z", "lost": 3}
    assert [line["path"] for line in others] == ["/four", "/five"]


def test_what_is_left_of_a_line_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    room = [150, 0, 10_000, 10_000]

    def write(_descriptor: int, data: bytes) -> int:
        size = min(len(data), room.pop(0))
        if not size:
            raise OSError(28, "No space left on device")
        written.append(data[:size])
        return size

    monkeypatch.setattr("channel_tools.serve.access_log.os.write", write)
    log = AccessLog(-1)
    entry(log, "/first")
    entry(log, "/second")
    log.flush()
    entry(log, "/third")
    log.flush()
    lines = b"".join(written).splitlines()
    assert [json.loads(line)["path"] for line in (lines[0], lines[-1])] == ["/first", "/third"]
    assert json.loads(lines[-2])["lost"] == 1


def test_a_reader_that_stalls_keeps_no_request_waiting() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    log = AccessLog(writing)
    for _ in range(40_000):
        entry(log)
    log.flush()
    with contextlib.suppress(BlockingIOError):
        while os.read(reading, 1 << 20):
            pass
    entry(log)
    log.flush()
    lines = os.read(reading, 1 << 20).splitlines()
    os.close(reading)
    os.close(writing)
    assert json.loads(lines[-2])["lost"] > 30_000
