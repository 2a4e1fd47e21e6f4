# SPDX-License-Identifier: BSD-3-Clause
"""Starting jobs and waiting for their end, without holding up the answers of the process that does."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from channel_tools.publish.wire import ErrorAnswer
from channel_tools.serve.uploads.held import try_hold
from channel_tools.serve.uploads.store import State

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.publish.wire import JobAnswer
    from channel_tools.serve.uploads.store import Job

_log = logging.getLogger(__name__)
_POLL_S = 0.1
_DRAIN_S = 20.0
_ENDED = frozenset({"open", "done", "failed"})
_PROGRAM = "channel_tools.serve.uploads.job"


class JobRunner:
    """Runs jobs of one server process, one at a time, each in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._turn = asyncio.Semaphore(1)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, job: Job) -> None:
        """Have the job carried out, unless it is already."""
        lock = try_hold(job.lock)
        if lock is None:
            return
        job.set_state(State(state="waiting"))
        task = asyncio.get_running_loop().create_task(self._run(job, lock))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self, job: Job, *, wait_s: float) -> JobAnswer:
        """How the job is when it has ended, or after ``wait_s``."""
        deadline_s = asyncio.get_running_loop().time() + wait_s
        answer = job.answer()
        while answer.state not in _ENDED and asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(_POLL_S)
            answer = job.answer()
        return answer

    async def drain(self) -> None:
        """Wait for the jobs under way; a client whose job is cut off commits it again."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_DRAIN_S)

    async def _run(self, job: Job, lock: int) -> None:
        try:
            async with self._turn:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", _PROGRAM, str(self._root), job.channel, job.id),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(lock,),
                )
                code = await process.wait()
            if code != 0:
                _log.error("job %s of channel %s ended with exit code %s", job.id, job.channel, code)
                error = ErrorAnswer(
                    kind="ChannelToolsError", message="the server could not carry it out; its log says why"
                )
                job.set_state(State(state="failed", error=error))
        finally:
            os.close(lock)
