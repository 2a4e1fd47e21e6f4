# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from channel_tools.serve.metrics import AccessLog, Metrics
from channel_tools.system.errors import ChannelToolsError


def entry(log: AccessLog, path: str = "/") -> None:
    log.add("10.0.0.1", "GET", path, status=200, size_bytes=5, seconds=0.5, token=None)


def test_the_counts_of_all_processes_are_added_up_whether_they_live_or_not() -> None:
    metrics = Metrics(3)

    def work() -> None:
        metrics.take_slot()
        metrics.count("GET", "package", 200, size_bytes=100, seconds=0.25)
        metrics.count("BREW", "other", 405, size_bytes=0, seconds=0.0)
        metrics.count_event("job_failed")
        os._exit(0)

    for _process in range(3):  # one more than there are slots: each frees its own by its end
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
    metrics.count_event("step_failed", 2)
    text, content_type = metrics.exposition()
    lines = text.decode().splitlines()
    assert 'channel_tools_requests_total{kind="package",method="GET",status="200"} 3.0' in lines
    assert 'channel_tools_sent_bytes_total{kind="package",method="GET",status="200"} 300.0' in lines
    assert 'channel_tools_answering_seconds_total{kind="package",method="GET",status="200"} 0.75' in lines
    assert 'channel_tools_requests_total{kind="other",method="other",status="405"} 3.0' in lines
    assert 'channel_tools_events_total{event="job_failed"} 3.0' in lines
    assert 'channel_tools_events_total{event="step_failed"} 2.0' in lines
    assert content_type.startswith("text/plain")


def test_processes_at_once_have_slots_of_their_own() -> None:
    metrics = Metrics(3)
    release_reading, release = os.pipe()
    told, telling = os.pipe()

    def work() -> None:
        try:
            metrics.take_slot()
            metrics.count("GET", "index", 200, size_bytes=1, seconds=0.0)
            os.write(telling, b"y")
        except ChannelToolsError:
            os.write(telling, b"n")
        os.close(release)
        os.read(release_reading, 1)
        os._exit(0)

    processes = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
    answers = []
    for process in processes:
        process.start()
        answers.append(os.read(told, 1))
    assert answers == [b"y", b"y", b"n"]
    os.close(release)
    for process in processes:
        process.join()
    for descriptor in (release_reading, told, telling):
        os.close(descriptor)
    text, _content_type = metrics.exposition()
    assert b'channel_tools_requests_total{kind="index",method="GET",status="200"} 2.0' in text


def test_no_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    metrics = Metrics(2)
    metrics.count("GET", "index", 304, size_bytes=0, seconds=0.0)
    metrics.exposition()
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_loses_lines_and_says_how_many() -> None:
    lost: list[int] = []
    with Path("/dev/full").open("wb", buffering=0) as full:
        log = AccessLog(full.fileno(), lost=lost.append)
        for _ in range(3):
            entry(log)
        log.flush()
    assert sum(lost) == 3


def test_what_is_left_of_a_line_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[int] = []
    written: list[bytes] = []
    room = [150, 0, 10_000, 10_000]

    def write(_descriptor: int, data: bytes) -> int:
        size = min(len(data), room.pop(0))
        if not size:
            raise OSError(28, "No space left on device")
        written.append(data[:size])
        return size

    monkeypatch.setattr("channel_tools.serve.metrics.os.write", write)
    log = AccessLog(-1, lost=lost.append)
    entry(log, "/first")
    entry(log, "/second")
    log.flush()
    entry(log, "/third")
    log.flush()
    lines = b"".join(written).splitlines()
    assert [json.loads(line)["path"] for line in (lines[0], lines[-1])] == ["/first", "/third"]
    assert lost == [1]


def test_a_reader_that_stalls_keeps_no_request_waiting() -> None:
    lost: list[int] = []
    reading, writing = os.pipe2(os.O_NONBLOCK)
    log = AccessLog(writing, lost=lost.append)
    for _ in range(40_000):
        entry(log)
    assert sum(lost) > 0
    os.close(reading)
    log.flush()
    os.close(writing)
    assert sum(lost) > 30_000
