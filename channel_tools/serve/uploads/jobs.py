# SPDX-License-Identifier: BSD-3-Clause
"""From the worker that was asked to the process that does a job, and back.

Workers hand jobs to the process that watches them, through one socket and in the order of asking; it forks a process
for each, which costs milliseconds since everything is imported there already. A job's lock travels with it, so that it
is held from the moment of asking until the end, and released by the system should everything be killed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.errors import ChannelError
from channel_tools.publish.wire import ErrorAnswer
from channel_tools.serve.uploads.held import try_hold
from channel_tools.serve.uploads.job import carry_out
from channel_tools.serve.uploads.store import JobStore, State, jobs_folder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkProcess
    from pathlib import Path

    from channel_tools.publish.wire import JobAnswer
    from channel_tools.serve.uploads.store import Job

_log = logging.getLogger(__name__)
_POLL_S = 0.02
_ENDED = frozenset({"open", "done", "failed"})
_AT_ONCE = 2
_TIME_LIMIT_S = 3600.0
_MEMORY_LIMIT_BYTES = 4 << 30
_MESSAGE_BYTES = 512
_NOT_CARRIED_OUT = ErrorAnswer(
    kind="ChannelToolsError", message="the server could not carry it out", hint="its log says why; ask who runs it"
)
_fork = multiprocessing.get_context("fork")


class JobRunner:
    """The side of a worker: asks for jobs and waits for their end."""

    def __init__(self, asking: socket.socket) -> None:
        self._asking = asking

    def start(self, job: Job) -> None:
        """Have the job carried out, unless it is already. Raises ChannelError when too many wait."""
        lock = try_hold(job.lock)
        if lock is None:
            return
        try:
            job.set_state(State(state="waiting"))
            socket.send_fds(self._asking, [f"{job.channel}/{job.id}".encode()], [lock])
        except OSError:
            raise ChannelError("too many jobs wait at this server", hint="ask again later") from None
        finally:
            os.close(lock)

    async def wait(self, job: Job, *, wait_s: float) -> JobAnswer:
        """How the job is when it has ended, or after ``wait_s``."""
        clock = asyncio.get_running_loop().time
        deadline_s, pause_s = clock() + wait_s, _POLL_S
        answer = job.answer()
        while answer.state not in _ENDED and clock() < deadline_s:
            await asyncio.sleep(pause_s)
            pause_s = min(0.5, pause_s * 1.5)
            answer = job.answer()
        return answer


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """A job that was asked for, and the open descriptor that holds its lock."""

    job: Job
    lock: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    asked: _Asked
    process: ForkProcess
    until_s: float


class JobQueue:
    """The side of the watching process: one job of a channel at a time, in the order of asking."""

    def __init__(self, root: Path, listener: socket.socket) -> None:
        self._root = root
        self._listener = listener
        self._store = JobStore(jobs_folder(root), clock=time.time)
        self._asked, self.asking = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.setblocking(False)  # noqa: FBT003 - the socket's own signature
        self.asking.setblocking(False)  # noqa: FBT003
        self._waiting: collections.deque[_Asked] = collections.deque()
        self._running: dict[int, _Running] = {}

    @property
    def watched(self) -> list[socket.socket | int]:
        """What to wait for: requests, and the ends of jobs."""
        return [self._asked, *self._running]

    def close_in_child(self, *, own: int | None = None) -> None:
        """In a process just forked: leave this side, and all locks but its ``own``, to the watching process.

        Else asking would not fail when that has ended, and the locks would outlive their jobs.
        """
        self._asked.close()
        for asked in (*self._waiting, *(running.asked for running in self._running.values())):
            if asked.lock != own:
                os.close(asked.lock)

    def attend(self, ready: Sequence[object]) -> None:
        """Take the requests that came, see to the jobs that ended, begin those whose turn it is."""
        if self._asked in ready:
            self._take()
        for sentinel in [one for one in self._running if one in ready]:
            self._finish(self._running.pop(sentinel))
        now_s = time.monotonic()
        for running in self._running.values():
            if now_s > running.until_s:
                running.process.kill()
        self._begin()

    def stop(self, wait_s: float) -> None:
        """Wait for running jobs; one that takes longer goes on by itself and ends in order."""
        deadline_s = time.monotonic() + wait_s
        for running in self._running.values():
            running.process.join(max(0.0, deadline_s - time.monotonic()))
            if running.process.exitcode is not None:
                self._finish(running)
        for asked in self._waiting:
            os.close(asked.lock)
        self._asked.close()
        self.asking.close()

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                message, locks, _flags, _address = socket.recv_fds(self._asked, _MESSAGE_BYTES, 1)
                channel, _slash, job_id = message.decode().partition("/")
                job = self._store.find(channel, job_id)
                if job is None:
                    for lock in locks:
                        os.close(lock)
                else:
                    self._waiting.append(_Asked(job=job, lock=locks[0]))

    def _begin(self) -> None:
        busy = {running.asked.job.channel for running in self._running.values()}
        for asked in list(self._waiting):
            if len(self._running) >= _AT_ONCE:
                return
            if asked.job.channel in busy:
                continue
            busy.add(asked.job.channel)
            self._waiting.remove(asked)
            process = _fork.Process(target=self._do, args=(asked,))
            process.start()
            until_s = time.monotonic() + _TIME_LIMIT_S
            self._running[process.sentinel] = _Running(asked=asked, process=process, until_s=until_s)

    def _finish(self, running: _Running) -> None:
        process, asked = running.process, running.asked
        process.join()
        if process.exitcode:
            _log.error("job %s of channel %s: exit code %s", asked.job.id, asked.job.channel, process.exitcode)
        if process.exitcode and process.exitcode > 0:
            asked.job.set_state(State(state="failed", error=_NOT_CARRIED_OUT))
        os.close(asked.lock)

    def _do(self, asked: _Asked) -> None:
        """The life of a job's process; it ends without interpreter teardown, see cli/entry.py."""
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what was begun is ended; SIGKILL does no harm either
            self._listener.close()  # else the port would stay taken for as long as this job
            self.close_in_child(own=asked.lock)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_LIMIT_BYTES, _MEMORY_LIMIT_BYTES))
            carry_out(self._root, asked.job)
            code = 0
        except Exception:  # noqa: BLE001 - the last resort: the watching process sees the exit code
            _log.exception("a job failed in a way that was not foreseen: a defect in channel_tools")
        finally:
            sys.stderr.flush()
            os._exit(code)
