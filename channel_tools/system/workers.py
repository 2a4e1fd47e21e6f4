# SPDX-License-Identifier: BSD-3-Clause
"""Running functions in parallel: pools of processes and of threads, and a process supervised with all its descendants.

The kernel ends these processes when the one that waits for their results ends, however that happens.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import logging
import os
import queue
import resource
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from channel_tools.system.errors import ChannelToolsError, ending_handlers
from channel_tools.system.kernel import all_processes, stat_fields
from channel_tools.system.processes import DYING_S, PR_SET_PDEATHSIG, left_in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_log = logging.getLogger(__name__)
_PR_SET_CHILD_SUBREAPER = 36
_DRAINED_BYTES = 4096
_HEARD_S = 1.0
SIGNALLED = 128
"""Added to the number of the signal that ended a supervised function, for its exit status."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def run_in_processes(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    *,
    processes: int,
    activity: str,
    error: type[ChannelToolsError] = ChannelToolsError,
) -> Iterator[tuple[_Item, _Result]]:
    """Call ``function`` with each item, starting in the given order, and yield item and result as each is done.

    Both are sent between processes, so they must be picklable. The first error ends the others and is raised, and so
    does an interrupt. Raises ``error`` if a process was killed (``activity`` says what it did).
    """
    # takes 10 ms to import, which would delay every command
    import multiprocessing  # noqa: PLC0415
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415

    before = set(multiprocessing.active_children())
    pool = concurrent.futures.ProcessPoolExecutor(
        max_workers=max(1, min(processes, len(items))),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
    )
    try:
        futures = {pool.submit(function, item): item for item in items}
        for future in completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        message = f"a process that {activity} was killed, most likely because memory ran out"
        raise error(message, hint="run it again with fewer --jobs; finished work is kept") from None
    except BaseException:
        # the pool notices its dead workers and drops the waiting items, and can then be shut down
        children = set(multiprocessing.active_children()) - before
        for child in children:
            child.kill()
        for child in children:
            child.join()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def run_in_threads(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    threads: int,
    cancel: Callable[[], None] = lambda: None,
) -> list[tuple[_Item, _Result]]:
    """Call ``function`` with each item, ``threads`` at once; yields items and results in the order of completion.

    The first error stops it: ``cancel`` is called, and the error is raised when the running calls have ended.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            futures = {pool.submit(function, item): item for item in items}
            return [(futures[done], done.result()) for done in completed(futures)]
        except BaseException:
            cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def completed(futures: Iterable[concurrent.futures.Future[_Result]]) -> Iterator[concurrent.futures.Future[_Result]]:
    """The futures as each is done, while signals are heard.

    Python acts on a signal between two steps of its own: one that comes as a wait begins is heard when the wait ends,
    which without a limit may be never.
    """
    ended: queue.SimpleQueue[concurrent.futures.Future[_Result]] = queue.SimpleQueue()
    running = 0
    for future in futures:
        future.add_done_callback(ended.put)
        running += 1
    while running:
        try:
            done = ended.get(timeout=_HEARD_S)
        except queue.Empty:
            continue
        running -= 1
        yield done


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Ask the kernel to signal this process when its parent (a process id) ends, in any way."""
    if not _is_tied_to(parent, number):
        os._exit(1)


_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Block the signals that end a command during the block. For forks: the child starts so and calls signals_released.

    Otherwise the child has its parent's handlers until it sets its own, and what they raise is lost while Python runs
    its hooks after a fork: a child that was asked to end would continue.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotedSignals:
    """Signals that have arrived in a block of signals_noted; ``arriving`` can be read from when one does."""

    heard: list[int]
    arriving: socket.socket

    def drain(self) -> None:
        """Read what signals wrote, so that only the next one makes ``arriving`` readable again."""
        with contextlib.suppress(BlockingIOError):
            while self.arriving.recv(_DRAINED_BYTES):
                pass


@contextlib.contextmanager
def signals_noted() -> Iterator[NotedSignals]:
    """While the block runs, note the signals of signals_raised instead of raising; for loops that wait for more.

    What a handler raises is lost if it runs within a finalizer or a callback of a weak reference (Python's
    documentation of sys.unraisablehook), and a signal that arrives just before a wait does not end that. Here the first
    is noted in any case, and ``arriving``, which the loop waits for, is signal.set_wakeup_fd's.
    """
    before = ending_handlers()
    arriving, waking = socket.socketpair()
    with arriving, waking:
        arriving.setblocking(False)  # noqa: FBT003 - the socket's own signature
        waking.setblocking(False)  # noqa: FBT003
        noted = NotedSignals(heard=[], arriving=arriving)
        former = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
        for number in before:
            signal.signal(number, lambda number, _frame: noted.heard.append(number))
        try:
            yield noted
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former)


def signals_released() -> None:
    """In a child that was forked with signals blocked and has set its own handlers: unblock the signals.

    They no longer wake what the parent waits with, see signals_noted.
    """
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


_AWAITED = _ENDING | {signal.SIGCHLD}


_SAMPLE_S = 1.0
_LOOK_S = 0.1


@dataclass(kw_only=True, slots=True)
class Consumption:
    """The resources that supervised processes used: processor seconds, and their peak memory.

    The memory is the largest sum of their resident memory, sampled once a second, and at least the peak of a single
    process; memory that processes share counts for each.
    """

    cpu_s: float = 0.0
    memory_bytes: int = 0

    def sample(self) -> None:
        """Sample the descendants of this process."""
        memory = sum(_resident_bytes(process_id) for process_id in descendants(os.getpid()))
        self.memory_bytes = max(self.memory_bytes, memory)

    def close(self) -> None:
        """Add what the kernel has counted for all that have ended."""
        counted = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_s = counted.ru_utime + counted.ru_stime
        self.memory_bytes = max(self.memory_bytes, counted.ru_maxrss * 1024)


def _resident_bytes(process_id: int) -> int:
    try:
        pages = int(Path("/proc", str(process_id), "statm").read_text(encoding="ascii").split()[1])
    except OSError:  # it has ended
        return 0
    return pages * resource.getpagesize()


def processor_ticks(process_id: int) -> int:
    """The processor time that a process has used, in the kernel's ticks; 0 if it has ended."""
    try:
        fields = stat_fields(process_id)
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def supervise(
    run: Callable[[], int],
    *,
    parent_pid: int,
    consumed: Consumption | None = None,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Run ``run`` in a forked child; returns its exit status, or 128 + the signal that ended it or this process.

    Call it in a separate process without threads, which becomes the subreaper of everything that ``run`` starts:
    processes that outlive their parent, even in another session, become its children. When it returns (``run`` has
    ended, a signal asked to end, or ``parent_pid`` has died), no descendant is alive, but for those that a warning
    names: SIGKILL did not end them within DYING_S. ``consumed`` gets the resources that they all used. With it,
    ``check`` is called once a second; an exception from it ends them and is raised.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if not _is_tied_to(parent_pid, signal.SIGTERM):
        return SIGNALLED + signal.SIGTERM
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        _run_supervised(run, supervisor)
    try:
        return _await_end(child, consumed, check)
    finally:
        _end_descendants()
        if consumed is not None:
            consumed.close()


def _run_supervised(run: Callable[[], int], supervisor: int) -> None:
    """Run the child: it always ends by os._exit, so that no frame of the supervisor runs twice."""
    status = 1
    try:
        end_with_parent(supervisor, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        status = run()
    finally:
        os._exit(status)


def _await_end(child: int, consumed: Consumption | None, check: Callable[[], None]) -> int:
    while True:
        number = _next_signal(consumed, check)
        if number in _ENDING:
            return SIGNALLED + number
        status = _reap().get(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNALLED - code


def _next_signal(consumed: Consumption | None, check: Callable[[], None]) -> int:
    if consumed is None:
        return signal.sigwait(_AWAITED)
    while (info := signal.sigtimedwait(_AWAITED, _SAMPLE_S)) is None:
        consumed.sample()
        check()
    return info.si_signo


def _reap() -> dict[int, int]:
    """Collect every child that has ended; returns the wait status by process id."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[result[0]] = result[1]
    return ended


def _end_descendants() -> None:
    """Kill all descendants; those that a dying process leaves become our children and are found in the next round.

    As a subreaper, this process has no descendants if it has no children: then nobody has to look at all processes.
    """
    until = time.monotonic() + DYING_S
    while _has_children() and (remaining := descendants(os.getpid())):
        for process_id in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        if time.monotonic() > until:
            _log.warning("%s", left_in_words(remaining))
            break
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_S)  # supervise has blocked it
        _reap()
    _reap()


def _has_children() -> bool:
    """Whether this process has children, running or ended; collects none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def descendants(root: int) -> list[int]:
    """The ids of all processes that a process has started, directly or through others."""
    children: dict[int, list[int]] = {}
    for process in all_processes():
        if not (process.is_zombie and process.parent != root):
            children.setdefault(process.parent, []).append(process.number)
    numbers, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        numbers += below
        queue += below
    return numbers


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it ends, in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, signal.SIGKILL)


def _is_tied_to(parent: int, number: signal.Signals) -> bool:
    """Ask the kernel for the signal at the parent's death; False if the parent has already died."""
    _prctl(PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
