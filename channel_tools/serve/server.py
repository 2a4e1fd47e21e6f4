# SPDX-License-Identifier: BSD-3-Clause
"""The server: one process that holds the socket and watches, workers that answer, and a process for each job.

All are forks of the first, so they share what was imported and start at once. A worker that dies is replaced; workers
that fail as soon as they start end the server. SIGTERM and SIGINT end it in order: no new connections, answers under
way are finished; a second one ends it at once.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.errors import ChannelToolsError, UsageError
from channel_tools.serve.metrics import Metrics
from channel_tools.serve.settings import ServeSettings, check_settings
from channel_tools.serve.uploads.jobs import JobQueue
from channel_tools.serve.uploads.store import JobStore, jobs_folder
from channel_tools.serve.worker import BACKLOG, SHUTDOWN_S, WorkerParts, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkProcess

_log = logging.getLogger(__name__)
_EARLY_S = 2.0
_FAILURES_LIMIT = 5
_LOOK_S = 60.0
_CLEAN_S = 3600.0
_JOBS_S = 20.0
_fork = multiprocessing.get_context("fork")


def serve(settings: ServeSettings, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; ``ready`` gets the address once requests are answered.

    Raises UsageError (a folder or address that cannot be served), ChannelToolsError when the workers keep failing.
    """
    check_settings(settings)
    with _listening(settings) as listener, _metrics_folder() as folder, _log_of(settings) as descriptor:
        queue = JobQueue(settings.root, listener)
        parts = WorkerParts(
            settings=settings, listener=listener, log=descriptor, metrics=Metrics(folder), asking=queue.asking
        )
        supervisor = _Supervisor(parts, queue)
        try:
            supervisor.start()
            ready(_address(listener))
            supervisor.watch()
        except KeyboardInterrupt:
            _log.info("ending")  # how a server is meant to end
        finally:
            try:
                supervisor.stop()
            except KeyboardInterrupt:  # asked a second time
                supervisor.kill()


class _Supervisor:
    """Keeps the workers running and the jobs going."""

    def __init__(self, parts: WorkerParts, queue: JobQueue) -> None:
        self._parts = parts
        self._queue = queue
        self._workers: dict[int, tuple[ForkProcess, float]] = {}
        self._failures = 0
        self._cleaned_s = -_CLEAN_S

    def start(self) -> None:
        while len(self._workers) < self._parts.settings.workers:
            worker = _fork.Process(target=_begin_work, args=(self._parts, self._queue, os.getpid()))
            worker.start()
            self._workers[worker.sentinel] = (worker, time.monotonic())

    def watch(self) -> None:
        while True:
            ready = multiprocessing.connection.wait([*self._workers, *self._queue.watched], timeout=_LOOK_S)
            for sentinel in [one for one in self._workers if one in ready]:
                self._replace(sentinel)
            self._queue.attend(ready)
            self._clean()

    def stop(self) -> None:
        self._parts.listener.close()  # once the workers have closed theirs, nobody waits for an answer in vain
        for worker, _started_s in self._workers.values():
            worker.terminate()
        deadline_s = time.monotonic() + SHUTDOWN_S + 5
        for worker, _started_s in self._workers.values():
            worker.join(max(0.1, deadline_s - time.monotonic()))
            if worker.exitcode is None:
                worker.kill()
                worker.join()
        self._queue.stop(_JOBS_S)

    def kill(self) -> None:
        """Wait for nothing any more."""
        for worker, _started_s in self._workers.values():
            worker.kill()
            worker.join()

    def _replace(self, sentinel: int) -> None:
        worker, started_s = self._workers.pop(sentinel)
        worker.join()
        self._parts.metrics.process_ended(worker.pid or 0)
        code = worker.exitcode or 0
        failed_early = code > 0 and time.monotonic() - started_s < _EARLY_S
        self._failures = self._failures + 1 if failed_early else 0
        if self._failures >= _FAILURES_LIMIT:
            message = (
                f"{self._failures} workers in a row failed as soon as they started, the last with exit code {code}"
            )
            raise ChannelToolsError(message, hint="the lines above say why")
        _log.warning("a worker ended with exit code %s; another takes its place", code)
        self.start()

    def _clean(self) -> None:
        """Remove uploads that nobody came back to, now and then."""
        if time.monotonic() - self._cleaned_s < _CLEAN_S:
            return
        self._cleaned_s = time.monotonic()
        for removed in JobStore(jobs_folder(self._parts.settings.root), clock=time.time).remove_stale():
            _log.info("the upload %s was given up and is removed", removed)


def _begin_work(parts: WorkerParts, queue: JobQueue, parent: int) -> None:
    queue.close_in_child()
    work(parts, parent)


@contextlib.contextmanager
def _listening(settings: ServeSettings) -> Iterator[socket.socket]:
    try:
        family, kind, _protocol, _name, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as err:
        message = f"{settings.host}:{settings.port}: cannot be listened on: {err.strerror or err}"
        raise UsageError(message, hint="choose another --host or --port; 0 takes any free port") from None
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _metrics_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="channel-tools-metrics-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _log_of(settings: ServeSettings) -> Iterator[int]:
    if settings.access_log is None:
        yield sys.stderr.fileno()
        return
    try:
        descriptor = os.open(settings.access_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    except OSError as err:
        message = f"{settings.access_log}: cannot be written: {err.strerror}"
        raise UsageError(message, hint="choose another --access-log") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)
