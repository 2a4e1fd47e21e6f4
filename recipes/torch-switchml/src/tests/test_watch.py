# SPDX-License-Identifier: BSD-3-Clause
"""Which rank's process has ended, told by ranks that are objects of one process."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from queue import Empty, Queue

import pytest
from test_agreement import MemoryStore

from torch_switchml.agreement import Agreement
from torch_switchml.watch import SessionWatch, watch_session

LIMIT_S = 20.0
CONTROLLER = "127.0.0.1:50099"


def watch_all(controllers: list[str]) -> list[SessionWatch | None]:
    """A watch of as many ranks as addresses of a controller, connected."""
    store = MemoryStore()

    def take_part(rank: int) -> SessionWatch | None:
        agreement = Agreement.begin(store=store, rank=rank, size=len(controllers))
        return watch_session(agreement, controllers[rank], timeout=timedelta(seconds=LIMIT_S))

    with ThreadPoolExecutor(len(controllers)) as pool:
        return list(pool.map(take_part, range(len(controllers))))


@contextmanager
def watched(size: int) -> Iterator[tuple[list[SessionWatch], "Queue[tuple[int, str]]"]]:
    """So many ranks, each watched by the next, and which of them hears what."""
    heard: Queue[tuple[int, str]] = Queue()

    def hear(rank: int, said: str) -> None:
        heard.put((rank, said))

    watches = [watch for watch in watch_all([CONTROLLER] * size) if watch is not None]
    assert len(watches) == size
    for rank, watch in enumerate(watches):
        watch.start(partial(hear, rank))
    yield watches, heard
    for watch in watches:
        watch.close()


def end_of(watch: SessionWatch) -> None:
    """What the system does with a process's connections when it ends."""
    watch.let_go()


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_others_hear_which_rank_ended(size: int) -> None:
    with watched(size) as (watches, heard):
        end_of(watches[1])
        said: dict[int, str] = {}
        while not said.keys() >= set(range(size)) - {1}:
            rank, text = heard.get(timeout=LIMIT_S)
            said[rank] = text
    said.pop(1, None)  # it lives on here, and may hear of its own end
    expected = {rank: f"rank 1: its process ended (rank {(rank - 1) % size} says so)" for rank in said}
    expected[2 % size] = f"rank 1: its process ended (its connection to rank {2 % size} has closed)"
    assert said == expected


def test_nobody_hears_of_a_rank_that_leaves() -> None:
    with watched(3) as (watches, heard):
        watches[1].close()
        watches[2].close()  # once its thread has heard from rank 1, or has been ended
    with pytest.raises(Empty):
        heard.get_nowait()


def test_a_rank_that_ends_after_another_has_left_is_heard_of_by_the_next() -> None:
    with watched(3) as (watches, heard):
        watches[0].close()
        end_of(watches[1])
        expected = "rank 1: its process ended (its connection to rank 2 has closed)"
        assert heard.get(timeout=LIMIT_S) == (2, expected)


def test_none_is_watched_where_one_rank_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    """All know that, and the first says why and what it means."""
    assert watch_all([CONTROLLER, "no-such-host.invalid:50099"]) == [None, None]
    (record,) = caplog.records
    assert "a rank that is killed will be known when its lease ends, no earlier: rank 1: " in record.getMessage()


def test_a_group_of_one_rank_has_nobody_to_watch() -> None:
    assert watch_all([CONTROLLER]) == [None]


def test_a_stranger_is_not_taken_for_the_next_rank() -> None:
    one, other = SessionWatch(0, 2, "127.0.0.1"), SessionWatch(1, 2, "127.0.0.1")
    heard: Queue[str] = Queue()
    port, _, host = one.address.split(" ", 2)
    with socket.create_connection((host, int(port))) as stranger, ThreadPoolExecutor(2) as pool:
        stranger.sendall(b"0" * 32)
        for connecting in [pool.submit(one.connect, other.address), pool.submit(other.connect, one.address)]:
            connecting.result()
        for watch in (one, other):
            watch.start(heard.put)
        assert stranger.recv(1) == b""
    one.let_go()
    assert heard.get(timeout=LIMIT_S).startswith("rank 0: its process ended")
    other.close()


def give_a_byte_at_a_time(port: int, ended: threading.Event) -> None:
    """As one who wants to be waited for, never long without a byte."""
    with socket.create_connection(("127.0.0.1", port)) as stranger, suppress(OSError):
        while not ended.wait(0.2):
            stranger.sendall(b"0")


def test_a_stranger_who_is_slow_keeps_nobody_waiting() -> None:
    """The rank after this one does not come: the limit is that of waiting for it, whoever else does."""
    one, other = SessionWatch(0, 2, "127.0.0.1"), SessionWatch(1, 2, "127.0.0.1")
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        stranger = pool.submit(give_a_byte_at_a_time, int(one.address.split()[0]), ended)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            one.connect(other.address)
        ended.set()
        assert time.monotonic() - began < 6  # the secret's 32 bytes would take 6.4 s
        stranger.result()
    one.let_go()
    other.let_go()


def test_a_rank_is_admitted_after_a_stranger_who_says_nothing() -> None:
    one, other = SessionWatch(0, 2, "127.0.0.1"), SessionWatch(1, 2, "127.0.0.1")
    port, _, host = one.address.split(" ", 2)
    with socket.create_connection((host, int(port))), ThreadPoolExecutor(2) as pool:
        for connecting in [pool.submit(one.connect, other.address), pool.submit(other.connect, one.address)]:
            connecting.result()
    one.let_go()
    other.let_go()


def test_a_watch_without_a_thread_is_closed_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives no thread: the session is closed then, whose destructor must not meet an error."""
    watch = SessionWatch(0, 2, "127.0.0.1")

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError):
        watch.start(print)
    watch.close()
