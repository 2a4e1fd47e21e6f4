# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import signal
from collections.abc import Generator
from multiprocessing import active_children

import pytest

from channel_tools.errors import ChannelToolsError, IntegrityError
from channel_tools.pool import run_in_processes


def work(item: int) -> tuple[int, int]:
    if item < 0:
        raise IntegrityError(f"item {item}")
    if item == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item, os.getpid()


def test_results_come_with_their_items_from_other_processes() -> None:
    found = dict(run_in_processes(work, [3, 1, 2], processes=2, what="worked"))
    assert {item: square for item, (square, _pid) in found.items()} == {1: 1, 2: 4, 3: 9}
    assert os.getpid() not in {pid for _square, pid in found.values()}


def test_an_error_ends_the_others_and_is_raised() -> None:
    with pytest.raises(IntegrityError, match="item -1"):
        list(run_in_processes(work, [-1, *range(1, 50)], processes=2, what="worked"))
    assert active_children() == []


def test_a_killed_process_is_named() -> None:
    with pytest.raises(ChannelToolsError, match="a process that worked was killed") as caught:
        list(run_in_processes(work, [0], processes=1, what="worked"))
    assert "--jobs" in (caught.value.hint or "")


def test_leaving_early_leaves_no_process() -> None:
    running = run_in_processes(work, list(range(1, 20)), processes=2, what="worked")
    next(running)
    assert isinstance(running, Generator)
    running.close()
    assert active_children() == []
