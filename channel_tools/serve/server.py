# SPDX-License-Identifier: BSD-3-Clause
"""The server's processes: one that holds the socket and watches, and workers that answer.

Workers are forks, so they share what was imported before and start at once. One that dies is replaced; one that keeps
dying ends the server. SIGTERM and SIGINT end it in order: no new connections, answers under way are finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from channel_tools.errors import ChannelToolsError, UsageError
from channel_tools.serve.access import Gatekeeper, parse_public
from channel_tools.serve.accesslog import AccessLog
from channel_tools.serve.guard import Guard
from channel_tools.serve.hotfiles import HotFiles
from channel_tools.serve.metrics import Metrics
from channel_tools.serve.protocol import ServingProtocol
from channel_tools.serve.reads import ChannelServer
from channel_tools.serve.routes import make_routes
from channel_tools.serve.settings import ServeSettings, check_settings
from channel_tools.serve.uploads.api import UploadApi
from channel_tools.serve.uploads.checks import Limits
from channel_tools.serve.uploads.foreign import ForeignUploads
from channel_tools.serve.uploads.jobs import JobRunner
from channel_tools.serve.uploads.store import JobStore, jobs_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkProcess

_log = logging.getLogger(__name__)
_BACKLOG = 2048
_KEEP_ALIVE_S = 75
_SHUTDOWN_S = 30
_SWEEP_TICKS = 20  # of uvicorn's 0.1 s
_FLUSH_TICKS = 5
_EARLY_DEATH_S = 2.0
_EARLY_DEATHS_LIMIT = 5
_fork = multiprocessing.get_context("fork")


def serve(settings: ServeSettings, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; ``ready`` gets the address once requests are answered.

    Raises UsageError (a folder or address that cannot be served), ChannelToolsError when the workers keep dying.
    """
    check_settings(settings)
    with _listening(settings) as listener, _metrics_folder() as folder, _log_of(settings) as descriptor:
        metrics = Metrics(folder)
        supervisor = _Supervisor(settings, listener, descriptor, metrics)
        try:
            supervisor.start()
            ready(_address(listener))
            supervisor.watch()
        except KeyboardInterrupt:
            _log.info("ending")  # how a server is meant to end
        finally:
            supervisor.stop()


class _Supervisor:
    """Keeps the workers running."""

    def __init__(self, settings: ServeSettings, listener: socket.socket, log: int, metrics: Metrics) -> None:
        self._settings = settings
        self._listener = listener
        self._log = log
        self._metrics = metrics
        self._workers: dict[int, tuple[ForkProcess, float]] = {}
        self._early_deaths = 0

    def start(self) -> None:
        while len(self._workers) < self._settings.workers:
            worker = _fork.Process(target=_work, args=(self._settings, self._listener, self._log, self._metrics))
            worker.start()
            self._workers[worker.sentinel] = (worker, time.monotonic())

    def watch(self) -> None:
        while True:
            ended = multiprocessing.connection.wait(list(self._workers))
            for sentinel in [one for one in self._workers if one in ended]:
                self._replace(sentinel)

    def _replace(self, sentinel: int) -> None:
        worker, started_s = self._workers.pop(sentinel)
        worker.join()
        self._metrics.process_ended(worker.pid or 0)
        early = time.monotonic() - started_s < _EARLY_DEATH_S
        self._early_deaths = self._early_deaths + 1 if early else 0
        if self._early_deaths >= _EARLY_DEATHS_LIMIT:
            message = f"{self._early_deaths} workers in a row ended at once, the last with exit code {worker.exitcode}"
            raise ChannelToolsError(message, hint="the lines above say why")
        _log.warning("a worker ended with exit code %s; another takes its place", worker.exitcode)
        self.start()

    def stop(self) -> None:
        for worker, _started_s in self._workers.values():
            worker.terminate()
        deadline_s = time.monotonic() + _SHUTDOWN_S + 5
        for worker, _started_s in self._workers.values():
            worker.join(max(0.1, deadline_s - time.monotonic()))
            if worker.exitcode is None:
                worker.kill()
                worker.join()


def _work(settings: ServeSettings, listener: socket.socket, log: int, metrics: Metrics) -> None:
    """The life of a worker; it ends without interpreter teardown, as every process of this project."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 1
    try:
        _Worker(settings, log, metrics).run(sockets=[listener])
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Worker(uvicorn.Server):
    """uvicorn's server with our housekeeping on its clock."""

    def __init__(self, settings: ServeSettings, log: int, metrics: Metrics) -> None:
        gate = Gatekeeper(settings.tokens_file, parse_public(settings.public))
        guard = Guard(gate)
        limits = Limits()
        store = JobStore(jobs_folder(settings.root), clock=time.time)
        self._access_log = AccessLog(log)
        self._metrics = metrics
        self._runner = JobRunner(settings.root)
        ours = UploadApi(settings.root, guard, self._runner, store, limits)
        theirs = ForeignUploads(settings.root, guard, self._runner, store, limits)
        app = ChannelServer(
            gate=gate,
            files=HotFiles(settings.root),
            log=self._access_log,
            metrics=metrics,
            routes=make_routes(
                root=settings.root, guard=guard, metrics=metrics, uploads=[*ours.routes(), *theirs.routes()]
            ),
        )
        super().__init__(_uvicorn_config(settings, app))

    def handle_exit(self, sig: int, frame: object) -> None:
        """End in order, and do not die of the signal afterwards as uvicorn would have it."""
        del sig, frame
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % _FLUSH_TICKS == 0:
            self._access_log.flush()
            self._metrics.flush()
        if counter % _SWEEP_TICKS == 0:
            now_s = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, ServingProtocol):
                    connection.sweep(now_s)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is under way."""
        await super().shutdown(sockets)
        await self._runner.drain()
        self._access_log.flush()


def _uvicorn_config(settings: ServeSettings, app: ChannelServer) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=ServingProtocol,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,  # below it, it tells of every broken request, which anybody can send
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        limit_concurrency=settings.connections,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )


@contextlib.contextmanager
def _listening(settings: ServeSettings) -> Iterator[socket.socket]:
    try:
        family, kind, _protocol, _name, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as err:
        message = f"{settings.host}:{settings.port}: cannot be listened on: {err.strerror or err}"
        raise UsageError(message, hint="choose another --host or --port; 0 takes any free port") from None
    with listener:
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
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
