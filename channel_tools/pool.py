# SPDX-License-Identifier: BSD-3-Clause
"""Work done in parallel processes, which never outlive the one that asked for them."""

from __future__ import annotations

import concurrent.futures
import ctypes
import multiprocessing
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, TypeVar

from channel_tools.errors import ChannelToolsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PR_SET_PDEATHSIG = 1
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_in_processes(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    processes: int,
    what: str,
    error: type[ChannelToolsError] = ChannelToolsError,
) -> Iterator[tuple[_Item, _Result]]:
    """Call ``function`` with each item, begun in the given order, and yield item and result as each is done.

    Both travel between processes, so they must be picklable. The first error ends the others and is raised; the same
    holds for an interrupt. Raises ``error`` when a process was killed (``what`` says what it did).
    """
    before = set(multiprocessing.active_children())
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=max(1, min(processes, len(items))),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
    )
    try:
        futures = {pool.submit(function, item): item for item in items}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        message = f"a process that {what} was killed, most likely because memory ran out"
        raise error(message, hint="run it again with fewer --jobs; what is done is kept") from None
    except BaseException:
        # the pool notices its dead workers, gives the waiting items up, and can then be shut down as a whole
        children = set(multiprocessing.active_children()) - before
        for child in children:
            child.kill()
        for child in children:
            child.join()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, signal.SIGKILL)


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have this process get the signal when its parent (a process id) ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)
