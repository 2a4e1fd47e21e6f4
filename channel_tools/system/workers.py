# SPDX-License-Identifier: BSD-3-Clause
"""Functions of ours side by side: pools of processes and of threads, a forked copy of this process, and a process
supervised with all that it starts.

The kernel ends the processes with the one that wants their results, however that ends.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import os
import pickle
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from channel_tools.system.errors import ChannelToolsError
from channel_tools.system.processes import PR_SET_PDEATHSIG, all_processes, stat_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_PR_SET_CHILD_SUBREAPER = 36
SIGNALLED = 128
"""What a supervised function's exit status has added to the number of the signal that ended it."""

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
    # 10 ms of import, which every command would wait for
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


def run_in_threads(
    function: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    threads: int,
    cancel: Callable[[], None] = lambda: None,
) -> list[tuple[_Item, _Result]]:
    """Call ``function`` with each item, ``threads`` at once; items and results, in the order in which they were done.

    The first error ends it: ``cancel`` is called, and the error raised when those that run have ended.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=threads) as pool:
        futures = {pool.submit(function, item): item for item in items}
        try:
            return [(futures[done], done.result()) for done in concurrent.futures.as_completed(futures)]
        except BaseException:
            cancel()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """Have this process get the signal when its parent (a process id) ends, however that ends."""
    if not _is_tied_to(parent, number):
        os._exit(1)


_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Let what ends a command wait until the block is over. For forks: the child begins so, and calls signals_released.

    Else the child has the handlers of its parent until it sets its own, and what they raise is lost where Python calls
    its hooks after a fork: a child that was told to end would go on.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def signals_released() -> None:
    """In a child that was forked while they were held: from now on it hears them, by handlers of its own."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def may_fork() -> bool:
    """Whether a forked copy of this process would run beside it, and safely: one thread, and a core for each of them.

    A copy has only the thread that forked: locks that others held stay locked in it.
    """
    return len(list(Path("/proc/self/task").iterdir())) == 1 and len(os.sched_getaffinity(0)) > 1


@contextlib.contextmanager
def forked(function: Callable[[], _Result]) -> Iterator[Callable[[], _Result | None]]:
    """Call ``function`` in a forked copy of this process while the block runs; gives what waits for its result.

    Where ``may_fork``. The result travels between processes, so it must be picklable. It is None where the copy came to
    no result, whatever the cause: do the work here then, which says what is wrong. The end of the block ends the copy.
    """
    parent = os.getpid()
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as results:
        with signals_held():
            copy = os.fork()
            if copy == 0:
                _run_forked(function, writing, parent)
        os.close(writing)
        try:
            yield lambda: _received(results.read())
        finally:
            os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)


def _run_forked(function: Callable[[], object], writing: int, parent: int) -> None:
    """The copy's life: signals are its parent's to act upon, and no frame of the parent's runs twice."""
    try:
        end_with_parent(parent, signal.SIGKILL)
        content = pickle.dumps(function())
        with os.fdopen(writing, "wb") as results:
            results.write(content)
    finally:
        os._exit(0)


def _received(content: bytes) -> Any:  # noqa: ANN401 - what the copy's function returned
    try:
        return pickle.loads(content)  # noqa: S301 - from a copy of this very process
    except (EOFError, pickle.UnpicklingError):  # it ended before it had written all
        return None


_AWAITED = _ENDING | {signal.SIGCHLD}


_SAMPLE_S = 1.0


@dataclass(kw_only=True, slots=True)
class Consumption:
    """What supervised processes took: processor seconds, and the most memory they had at one time.

    The memory is the largest sum of what was resident of them, seen once a second, at least the most that a single one
    had; what several share counts for each.
    """

    cpu_s: float = 0.0
    memory_bytes: int = 0

    def sample(self) -> None:
        """Look at the descendants of this process."""
        memory = sum(_resident_bytes(process_id) for process_id in descendants(os.getpid()))
        self.memory_bytes = max(self.memory_bytes, memory)

    def close(self) -> None:
        """Add what the kernel has counted of all that have ended."""
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
    """How much of a processor a process has used, in the kernel's ticks; 0 for one that has ended."""
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

    Call it in a process of its own without threads, which becomes the subreaper of all that ``run`` starts: processes
    that outlive their parent, also in sessions of their own, become its children. When it returns (``run`` has ended, a
    signal asked for the end, or ``parent_pid`` has died), no descendant of the process is alive. ``consumed`` gets what
    they all took. With it ``check`` is called once a second; what it raises ends them and is raised.
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
    """The child's life: it ends by os._exit whatever happens, so that no frame of the supervisor runs twice."""
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
    while (got := signal.sigtimedwait(_AWAITED, _SAMPLE_S)) is None:
        consumed.sample()
        check()
    return got.si_signo


def _reap() -> dict[int, int]:
    """Collect every child that has ended: process id to wait status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def _end_descendants() -> None:
    """Kill all descendants; those that a dying process leaves become our children and are found in the next round."""
    while left := descendants(os.getpid()):
        for process_id in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
        _reap()
    _reap()


def descendants(root: int) -> list[int]:
    """The processes that a process has started, directly or through others."""
    children: dict[int, list[int]] = {}
    for one in all_processes():
        if not (one.is_zombie and one.parent != root):
            children.setdefault(one.parent, []).append(one.number)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _prepare_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end with it however it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent(parent, signal.SIGKILL)


def _is_tied_to(parent: int, number: signal.Signals) -> bool:
    """Ask the kernel for the signal at the parent's death; False when the parent has died before."""
    _prctl(PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
