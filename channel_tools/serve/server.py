# SPDX-License-Identifier: BSD-3-Clause
"""The server: one process that opens the socket and supervises, workers that serve requests, and a process per job.

All are forks of the first, so they share what was imported and start at once. A worker is uvicorn with our application
and our connections. A worker that dies is replaced; if workers keep failing at start, the server ends. SIGTERM and
SIGINT end it in order: no new connections, started responses are finished; a second signal ends it at once.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import logging
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.publish.model import is_label
from channel_tools.serve.access.guard import Gatekeeper, Guard, parse_public
from channel_tools.serve.access.tokens import default_tokens_file
from channel_tools.serve.addresses import is_channel_name
from channel_tools.serve.admission import Admission, connections_for, raise_files_limit
from channel_tools.serve.application import ChannelServer, make_routes
from channel_tools.serve.connection import Connection, limited
from channel_tools.serve.files import FileCache
from channel_tools.serve.metrics import AccessLog, Metrics
from channel_tools.serve.uploads.api import UploadApi
from channel_tools.serve.uploads.checks import Limits
from channel_tools.serve.uploads.jobs import JobQueue, JobRunner
from channel_tools.system.errors import ChannelToolsError, UsageError
from channel_tools.system.workers import end_with_parent, signals_held, signals_noted, signals_released

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator
    from multiprocessing.context import ForkProcess
    from pathlib import Path

    from starlette.types import ASGIApp

    from channel_tools.requests.serve import ServeRequest
    from channel_tools.system.workers import NotedSignals


_log = logging.getLogger(__name__)
_EARLY_S = 2.0
_FAILURES_LIMIT = 5
_LOOK_S = 60.0
_AGAIN_S = 1.0
_CLEAN_S = 3600.0
_JOBS_S = 20.0
_BACKLOG = 2048
_SHUTDOWN_S = 30
_KEEP_ALIVE_S = 75
_fork = multiprocessing.get_context("fork")


def _tokens_file(request: ServeRequest) -> Path:
    return request.tokens or default_tokens_file(request.root)


def check_request(request: ServeRequest) -> None:
    """Raise UsageError for a folder that cannot be served, and for a token file that would be served."""
    root = request.root
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such folder", hint="give the folder that contains the channels")
    if (root / RECORD_FOLDER / "channel.json").is_file():
        message = (
            f"{root}: is a channel; expected the folder that contains channels, since each is served below its name"
        )
        raise UsageError(message, hint=f"serve {root.parent} instead; this channel is then at /{root.name}/")
    for channel, label in sorted(parse_public(request.public)):
        if not is_channel_name(channel) or not is_label(label):
            message = f"--public {channel}/{label}: not a valid channel and label name"
            raise UsageError(message, hint="write NAME or NAME/LABEL")
    for proxy in request.proxies:
        if proxy != "*" and not _is_network(proxy):
            message = f"--proxy {proxy!r}: not a valid address"
            raise UsageError(message, hint="write the proxy's IP address or network: 10.0.0.7, 10.0.0.0/8, ::1, or *")
    _check_tokens_file(request)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _check_tokens_file(request: ServeRequest) -> None:
    root, file = request.root.resolve(), _tokens_file(request).resolve()
    if not file.is_relative_to(root):
        return
    if not any(part.startswith(".") for part in file.relative_to(root).parts):
        message = f"{_tokens_file(request)}: the token file is in a folder that would be served"
        raise UsageError(message, hint=f"keep it elsewhere, for example at {default_tokens_file(request.root)}")


def serve(request: ServeRequest, *, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; ``ready`` is called with the address once requests are answered.

    Raises UsageError (a folder or address that cannot be served), ChannelToolsError if the workers keep failing.
    """
    check_request(request)
    raise_files_limit()
    with _listening(request) as listener, _log_of(request) as descriptor:
        metrics = Metrics(1 + request.worker_count)
        queue = JobQueue(request.root, listener, metrics)
        parts = WorkerParts(request=request, listener=listener, log=descriptor, metrics=metrics, queue=queue)
        supervisor = _Supervisor(parts)
        try:
            supervisor.start()
            ready(_address(listener))
            supervisor.run()
            _log.info("ending")  # how a server is meant to end
        except KeyboardInterrupt:
            _log.info("ending before it served")
        finally:
            try:
                supervisor.stop()
            except KeyboardInterrupt:  # the second one
                supervisor.kill()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Worker:
    """A process that serves requests; ``slot`` is its slot in the metrics."""

    process: ForkProcess
    slot: int
    started_s: float


class _Supervisor:
    """Keeps the workers running and the jobs going.

    No single job, channel or full disk ends it: failures are logged, counted, and tried again later.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._queue = parts.queue
        self._workers: dict[int, _Worker] = {}
        self._failures = 0
        self._cleaned_s = -_CLEAN_S

    def start(self) -> None:
        """Start the workers that are missing."""
        used_slots = {worker.slot for worker in self._workers.values()}
        for slot in range(1, 1 + self._parts.request.worker_count):
            if slot not in used_slots:
                process = _fork.Process(target=_work, args=(self._parts, os.getpid(), slot))
                with signals_held():
                    process.start()
                    self._workers[process.sentinel] = _Worker(process=process, slot=slot, started_s=time.monotonic())

    def run(self) -> None:
        """Keep all going until a signal asks to end."""
        with signals_noted() as noted:
            wait_s = 0.0
            while not noted.heard:
                wait_s = self._run_once(noted, wait_s)

    def _run_once(self, noted: NotedSignals, wait_s: float) -> float:
        """Wait for something to do, and do it; returns how long to wait for the next."""
        ready = multiprocessing.connection.wait(
            [noted.arriving, *self._workers, *self._queue.waitables], timeout=wait_s
        )
        if noted.arriving in ready:
            noted.drain()
        for sentinel in [ended for ended in self._workers if ended in ready]:
            self._note_end(sentinel)
        steps = (self.start, functools.partial(self._queue.handle, ready), self._clean)
        failed = [step for step in steps if not self._done(step)]
        if failed:
            multiprocessing.connection.wait([noted.arriving], timeout=_AGAIN_S)
        return _AGAIN_S if failed else _LOOK_S

    def _done(self, step: Callable[[], None]) -> bool:
        """Run a step; returns whether it succeeded, and logs why if not."""
        try:
            step()
        except (ChannelToolsError, OSError) as err:
            _log.error("%s; trying again in a moment", err)
        except Exception:  # noqa: BLE001 - the last resort: otherwise every channel would go down
            _log.exception("this is a defect in channel_tools; the server continues")
        else:
            return True
        self._parts.metrics.count_event("step_failed")
        return False

    def stop(self) -> None:
        self._parts.listener.close()  # once the workers have closed theirs, no client waits in vain for a response
        processes = [worker.process for worker in self._workers.values()]
        for process in processes:
            process.terminate()
        deadline_s = time.monotonic() + _SHUTDOWN_S + 5
        for process in processes:
            process.join(max(0.1, deadline_s - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        self._queue.stop(_JOBS_S)

    def kill(self) -> None:
        """Kill the workers without waiting for responses."""
        for worker in self._workers.values():
            worker.process.kill()
            worker.process.join()

    def _note_end(self, sentinel: int) -> None:
        """Note that a worker has ended. Raises ChannelToolsError if one after the other ends as soon as it starts."""
        worker = self._workers.pop(sentinel)
        worker.process.join()
        self._parts.metrics.count_event("worker_replaced")
        code = worker.process.exitcode or 0
        failed_early = code > 0 and time.monotonic() - worker.started_s < _EARLY_S
        self._failures = self._failures + 1 if failed_early else 0
        if self._failures >= _FAILURES_LIMIT:
            message = (
                f"{self._failures} workers in a row failed as soon as they started, the last with exit code {code}"
            )
            raise ChannelToolsError(message, hint="the lines above say why")
        _log.warning("a worker ended with exit code %s and is replaced", code)

    def _clean(self) -> None:
        """Remove abandoned uploads from time to time."""
        if time.monotonic() - self._cleaned_s < _CLEAN_S:
            return
        self._cleaned_s = time.monotonic()
        for removed in self._queue.store.remove_stale():
            _log.info("removed the abandoned upload %s", removed)


@contextlib.contextmanager
def _listening(request: ServeRequest) -> Iterator[socket.socket]:
    try:
        family, kind, _protocol, _name, address = socket.getaddrinfo(
            request.host, request.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except (OSError, UnicodeError) as err:
        reason = (err.strerror if isinstance(err, OSError) else None) or "it is not a host name or address"
        message = f"{request.host}:{request.port}: cannot listen on this address: {reason}"
        raise UsageError(message, hint="choose another --host or --port; 0 takes any free port") from None
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def _log_of(request: ServeRequest) -> Iterator[int]:
    if request.access_log is None:
        yield sys.stderr.fileno()
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # do not wait for a pipe's reader
        descriptor = os.open(request.access_log, flags, 0o640)
        os.set_blocking(descriptor, True)
    except OSError as err:
        message = f"{request.access_log}: cannot be written: {err.strerror}"
        raise UsageError(message, hint="choose another --access-log") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerParts:
    """What the supervising process passes to a worker; ``log`` is an open descriptor."""

    request: ServeRequest
    listener: socket.socket
    log: int
    metrics: Metrics
    queue: JobQueue


def _work(parts: WorkerParts, parent: int, slot: int) -> None:
    """Run a worker, which counts in ``slot``; it exits without interpreter teardown, see cli/entry.py."""
    code = 1
    try:
        parts.queue.close_in_child()
        parts.metrics.use_slot(slot)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signals_released()
        end_with_parent(parent, signal.SIGTERM)
        _run(parts)
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except Exception:  # noqa: BLE001 - the last resort: the parent sees the exit code
        _log.exception("a worker failed: this is a defect in channel_tools")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(parts: WorkerParts) -> None:
    log = AccessLog(parts.log, lost=lambda count: parts.metrics.count_event("log_line_lost", count))

    async def flush() -> None:
        log.flush()

    server = uvicorn.Server(_uvicorn_config(parts, limited(_application(parts, log)), flush))
    # uvicorn handles the signal while it serves, and raises it again afterwards, which must not kill what runs then
    signal.signal(signal.SIGTERM, server.handle_exit)
    try:
        server.run(sockets=[parts.listener])
    finally:
        log.close()


def _application(parts: WorkerParts, log: AccessLog) -> ChannelServer:
    root = parts.request.root
    gate = Gatekeeper(_tokens_file(parts.request), parse_public(parts.request.public))
    guard = Guard(gate)
    uploads = UploadApi(
        root=root, guard=guard, runner=JobRunner(parts.queue.sending), store=parts.queue.store, limits=Limits()
    )
    return ChannelServer(
        gate=gate,
        files=FileCache(root),
        log=log,
        metrics=parts.metrics,
        routes=make_routes(root=root, guard=guard, metrics=parts.metrics, uploads=uploads.routes()),
    )


def _uvicorn_config(parts: WorkerParts, app: ASGIApp, flush: Callable[[], Awaitable[None]]) -> uvicorn.Config:
    """``flush`` is called once a second."""
    request = parts.request
    total = connections_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0], request.connections)
    each = (
        min(request.connections_each, max(1, total // 4)) if total < request.connections else request.connections_each
    )
    admission = Admission(total=total, each=each, shared=frozenset(request.proxies), event=parts.metrics.count_event)

    def connection(**arguments: Any) -> Connection:  # noqa: ANN401 - passed on
        return Connection(admission=admission, **arguments)

    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", connection),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,  # at lower levels, uvicorn reports every malformed request, which anybody can send
        access_log=False,
        server_header=False,
        proxy_headers=bool(request.proxies),
        forwarded_allow_ips=list(request.proxies),
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_S,
        callback_notify=flush,
        timeout_notify=0,
    )
