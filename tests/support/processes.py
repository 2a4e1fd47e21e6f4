# SPDX-License-Identifier: BSD-3-Clause
"""What tests ask about processes that they did not start themselves."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from channel_tools.system.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

TEST_TIMEOUT_S = 900.0
"""What a test gives to that which has to happen: only what hangs takes so long.

A machine at a load of 20 takes minutes for what takes seconds at rest.
"""
RANDOM_KILLS = int(os.environ.get("CHANNEL_TOOLS_TEST_KILLS", "20"))
"""At how many random moments a test of kills strikes."""


def run_here(
    function: Callable[[_Item], _Result], items: Sequence[_Item], **_: object
) -> Iterator[tuple[_Item, _Result]]:
    """In place of system.workers.run_in_processes: in this process, one after the other."""
    for item in items:
        yield item, function(item)


def assert_ended(process_ids: list[int]) -> None:
    """Each of the processes is gone, or goes within TEST_TIMEOUT_S."""
    for process_id in process_ids:
        try:
            descriptor = os.pidfd_open(process_id)
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([descriptor], [], [], TEST_TIMEOUT_S)
        os.close(descriptor)
        assert ended, f"process {process_id} is still there: {Path(f'/proc/{process_id}/cmdline').read_bytes()!r}"


@contextmanager
def time_limit(seconds: float = TEST_TIMEOUT_S) -> Iterator[None]:
    """Fail what still runs in the block, in the main thread, after so long."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"still not ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


_PTRACE_SEIZE = 0x4206


@contextmanager
def beyond_kill(process_id: int) -> Iterator[None]:
    """Within the block, SIGKILL does not end the process as its parent sees it, as where the kernel waits in one.

    This process, one of its ancestors, traces it: it stays in /proc until its tracer has collected it.
    """
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.restype, trace.argtypes = ctypes.c_long, [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if trace(_PTRACE_SEIZE, process_id, None, None) != 0:
        pytest.skip(f"processes cannot be traced here: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)


def seconds_since_the_last_step(folder: Path) -> float:
    """How long ago a rank of a validation last said where it is; what it took to start and to import is left out."""
    steps = [path.stat().st_mtime for pattern in ("rank-*.pid", "rank-*.at") for path in folder.glob(pattern)]
    return time.time() - max(steps)


def processes_naming(folder: Path) -> list[str]:
    """Command lines of running processes that name ``folder``."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            lines.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return lines


def square_elsewhere(item: int) -> tuple[int, int]:
    """What a worker process does in tests: the square and who made it, an error below 0, its own death at 0.

    It stands here because a worker imports the module that holds its function, and this one imports little.
    """
    if item < 0:
        raise IntegrityError(f"item {item}")
    if item == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item, os.getpid()


def wait_for(condition: Callable[[], bool], *, limit_s: float = TEST_TIMEOUT_S) -> None:
    """Look again and again until the condition holds, which it has to within the limit."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
