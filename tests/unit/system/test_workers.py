# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from multiprocessing import active_children

import pytest

from channel_tools.system.errors import ChannelToolsError, IntegrityError
from channel_tools.system.workers import completed, run_in_processes, run_in_threads
from tests.support.processes import TEST_TIMEOUT_S, assert_ended, beyond_kill, square_elsewhere


def test_results_come_with_their_items_from_other_processes() -> None:
    found = dict(run_in_processes(square_elsewhere, [3, 1, 2], processes=2, activity="worked"))
    assert {item: square for item, (square, _pid) in found.items()} == {1: 1, 2: 4, 3: 9}
    assert os.getpid() not in {pid for _square, pid in found.values()}


def test_an_error_ends_the_others_and_is_raised() -> None:
    with pytest.raises(IntegrityError, match="item -1"):
        list(run_in_processes(square_elsewhere, [-1, *range(1, 50)], processes=2, activity="worked"))
    assert active_children() == []


def test_a_killed_process_is_named() -> None:
    with pytest.raises(ChannelToolsError, match="a process that worked was killed") as caught:
        list(run_in_processes(square_elsewhere, [0], processes=1, activity="worked"))
    assert "--jobs" in (caught.value.hint or "")


def test_leaving_early_leaves_no_process() -> None:
    running = run_in_processes(square_elsewhere, list(range(1, 20)), processes=2, activity="worked")
    next(running)
    assert isinstance(running, Generator)
    running.close()
    assert active_children() == []


def test_threads_give_results_with_their_items() -> None:
    assert sorted(run_in_threads(str, iter([3, 1, 2]), threads=2)) == [(1, "1"), (2, "2"), (3, "3")]


def test_a_signal_that_does_not_wake_the_waiting_thread_is_heard() -> None:
    """As one that comes just before the wait; here another thread gets it."""
    ended, waiting = threading.Event(), threading.get_ident()

    def work(_item: int) -> None:
        deadline = time.monotonic() + TEST_TIMEOUT_S
        while sys._current_frames()[waiting].f_code is not completed.__code__:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.1)  # so that it does not come before the wait, where it would be heard in any case
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        assert ended.wait(TEST_TIMEOUT_S)

    with pytest.raises(KeyboardInterrupt):
        run_in_threads(work, [1], threads=1, cancel=ended.set)


def test_an_error_in_a_thread_is_raised_when_those_that_run_were_cancelled_and_have_ended() -> None:
    begun, cancelled, ended = threading.Event(), threading.Event(), []

    def work(item: int) -> None:
        if item == 0:
            assert begun.wait(TEST_TIMEOUT_S)
            raise IntegrityError("item 0")
        begun.set()
        assert cancelled.wait(TEST_TIMEOUT_S)
        ended.append(item)

    with pytest.raises(IntegrityError, match="item 0"):
        run_in_threads(work, [0, 1], threads=2, cancel=cancelled.set)
    assert ended == [1]


# Starts a process that leaves its parent's session and outlives it, says the ids of all, then does what it is told.
_DRIVER = """
import os, subprocess, sys
from channel_tools.system.workers import supervise

def run():
    script = "setsid sh -c 'sleep 1000 & wait' >/dev/null 2>&1 & echo $!"
    grandchild = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True).stdout.strip()
    print(os.getppid(), os.getpid(), grandchild, flush=True)
    action = sys.argv[1]
    if action == "wait":
        sys.stdin.read()
    if action == "crash":
        os.abort()
    if action == "raise":
        raise ValueError("not caught")
    return 7

os._exit(supervise(run, parent_pid=int(sys.argv[2]) or os.getppid()))
"""
_PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], "wait", str(os.getpid())], stdin=sys.stdin)
"""


@pytest.fixture
def held_open() -> Iterator[int]:
    """The reading end of a pipe that nobody writes to: a process that reads it waits until it is ended."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def start(*arguments: str, stdin: int, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, text=True)


def processes_of(driver: subprocess.Popen[str]) -> list[int]:
    assert driver.stdout is not None
    return [int(word) for word in driver.stdout.readline().split()]


@pytest.mark.parametrize(
    ("action", "status"),
    [("return", 7), ("crash", 128 + signal.SIGABRT), ("raise", 1)],
)
def test_the_status_is_the_childs_and_nothing_stays(held_open: int, action: str, status: int) -> None:
    with start(_DRIVER, action, "0", stdin=held_open) as driver:
        process_ids = processes_of(driver)
        assert len(process_ids) == 3
        assert driver.wait(timeout=TEST_TIMEOUT_S) == status
    assert_ended(process_ids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all(held_open: int, number: signal.Signals) -> None:
    with start(_DRIVER, "wait", "0", stdin=held_open) as driver:
        process_ids = processes_of(driver)
        driver.send_signal(number)
        assert driver.wait(timeout=TEST_TIMEOUT_S) == 128 + number
    assert_ended(process_ids)


def test_what_even_sigkill_does_not_end_is_named_and_not_waited_for(held_open: int) -> None:
    impatient = f"from channel_tools.system import workers\nworkers.DYING_S = 0.5\n{_DRIVER}"
    with start(impatient, "wait", "0", stdin=held_open, stderr=subprocess.PIPE) as driver:
        *ended, left = processes_of(driver)
        with beyond_kill(left):
            driver.send_signal(signal.SIGTERM)
            _, said = driver.communicate(timeout=TEST_TIMEOUT_S)
    assert driver.returncode == 128 + signal.SIGTERM
    assert f"left behind: process {left}, which did not end" in said
    assert_ended(ended)


def test_the_death_of_the_parent_ends_all(held_open: int) -> None:
    with start(_PARENT, _DRIVER, stdin=held_open) as parent:
        process_ids = processes_of(parent)
        parent.kill()
        parent.wait(timeout=TEST_TIMEOUT_S)
        assert_ended(process_ids)


def test_a_parent_that_is_gone_already_means_nothing_is_started(held_open: int) -> None:
    with start(_DRIVER, "wait", "1", stdin=held_open) as driver:
        assert processes_of(driver) == []
        assert driver.wait(timeout=TEST_TIMEOUT_S) == 128 + signal.SIGTERM
