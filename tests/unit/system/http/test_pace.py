# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime

import pytest

from channel_tools.system.http.pace import Retry, Watch, retry_after_s


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 0.0),
        ("", 0.0),
        ("7", 7.0),
        ("Sun, 01 Mar 2026 00:01:30 GMT", 90.0),
        ("Sat, 28 Feb 2026 23:59:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, expected: float) -> None:
    headers = {} if value is None else {"Retry-After": value}
    assert retry_after_s(headers, now=datetime(2026, 3, 1, tzinfo=UTC)) == expected


def test_pauses_double_vary_and_end() -> None:
    retry = Retry(attempts=9, first_wait_s=1.0, longest_wait_s=8.0)
    for failures, most in ((0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (8, 8.0)):
        waits = {retry.wait_s(failures) for _ in range(20)}
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(waits) > 1 or not most
    assert retry.wait_s(1, 30.0) == 30.0
    assert not retry.is_last(8)
    assert retry.is_last(9)
    assert retry.is_last(1, retry.longest_retry_after_s + 1)


def test_reads_of_many_pieces_are_watched_by_one_thread() -> None:
    watch, before = Watch(60.0), threading.active_count()
    sending, receiving = socket.socketpair()
    with sending, receiving:
        for number in range(1000):
            with watch.over(receiving):
                sending.send(b"x")
                assert receiving.recv(1) == b"x"
            assert threading.active_count() <= before + 1, number
