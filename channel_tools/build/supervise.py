# SPDX-License-Identifier: BSD-3-Clause
"""Runs a function in a child process and leaves no process behind, however things end.

The supervisor is the subreaper of all that the function starts: processes that outlive their parent, also in sessions
of their own, become its children and are killed when the function has ended, when a signal asks for the end, or when
the supervisor's own parent has died (Linux's parent-death signal). Only Linux offers this, and builds run on Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_WATCHED = _ENDING | {signal.SIGCHLD}
SIGNALLED = 128
_PARENT_GONE = SIGNALLED + signal.SIGTERM


def supervise(run: Callable[[], int], *, parent_pid: int) -> int:
    """Run ``run`` in a forked child; returns its exit status, or 128 + the signal that ended it or the supervisor.

    Call it in a process of its own without threads. When it returns, no descendant of the process is alive.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != parent_pid:  # it died before the signal was asked for
        return _PARENT_GONE
    child = os.fork()
    if child == 0:
        _run_child(run)
    try:
        return _await_end(child)
    finally:
        _end_descendants()


def _run_child(run: Callable[[], int]) -> None:
    """The child's life: it ends by os._exit whatever happens, so that no frame of the supervisor runs twice."""
    status = 1
    try:
        supervisor = os.getppid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
        if os.getppid() == supervisor:
            status = run()
    finally:
        os._exit(status)


def _await_end(child: int) -> int:
    while True:
        number = signal.sigwait(_WATCHED)
        if number in _ENDING:
            return SIGNALLED + number
        status = _reap().get(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNALLED - code


def _reap() -> dict[int, int]:
    """Collect every child that has ended: process id to wait status."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            ended[found[0]] = found[1]
    return ended


def _end_descendants() -> None:
    """Kill all descendants; those that a dying process leaves become our children and are found in the next round."""
    while descendants := _descendants(os.getpid()):
        for process_id in descendants:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
        _reap()
    _reap()


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for process_id, parent, is_zombie in _processes():
        if not (is_zombie and parent != root):
            children.setdefault(parent, []).append(process_id)
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _processes() -> list[tuple[int, int, bool]]:
    """Every process of the machine: id, parent's id, whether it has ended and only waits to be collected."""
    rows = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                # "pid (command) state parent ...": the command may hold spaces and brackets
                state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                rows.append((int(folder.name), int(parent), state == "Z"))
    return rows


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")
