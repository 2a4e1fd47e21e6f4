# SPDX-License-Identifier: BSD-3-Clause
"""The server: a process that keeps the jobs going, granian with its workers, and a process per job.

All are forks of the first, so they share what was imported and start at once. granian listens, replaces workers that
die and limits what clients may send; its workers run our application. SIGTERM and SIGINT end the server in order: no
new connections, started responses are finished, jobs have some seconds; a second signal ends it at once. If granian
ends by itself, which it does when a worker dies twice within seconds, it is started again; if that keeps failing, the
server ends with an error.
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
from typing import TYPE_CHECKING

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.utils.proxies import wrap_asgi_with_proxy_headers

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.publish.model import is_label
from channel_tools.serve.access.guard import Gatekeeper, Guard, parse_public
from channel_tools.serve.access.tokens import default_tokens_file
from channel_tools.serve.access_log import AccessLog
from channel_tools.serve.addresses import is_channel_name
from channel_tools.serve.application import ChannelServer, make_routes
from channel_tools.serve.files import FileCache
from channel_tools.serve.uploads.api import UploadApi
from channel_tools.serve.uploads.checks import Limits
from channel_tools.serve.uploads.jobs import JobQueue, JobRunner
from channel_tools.system.errors import ChannelToolsError, UsageError
from channel_tools.system.workers import end_with_parent, signals_held, signals_noted, signals_released

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import ForkProcess
    from pathlib import Path

    from starlette.types import ASGIApp

    from channel_tools.requests.serve import ServeRequest
    from channel_tools.system.workers import NotedSignals


_log = logging.getLogger(__name__)
_EARLY_S = 5.0
_FAILURES_LIMIT = 20
"""High, as each may be a worker that was killed twice: granian gives up then."""
_LISTEN_S = 0.02
_LOOK_S = 60.0
_AGAIN_S = 1.0
_CLEAN_S = 3600.0
_JOBS_S = 20.0
_BACKLOG = 2048
_SHUTDOWN_S = 30
_HEADER_TIME_MS = 5_000
_HEADER_BYTES = 16 << 10
_FILES_EACH = 3
"""Descriptors that a connection may need: its socket, the file that is sent, and one of an upload."""
_FILES_KEPT = 64
"""Descriptors for everything else: the listener, the log, and those of the interpreter and a lock."""
_FEWEST_CONNECTIONS = 8
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
    place = _place_of(request)
    with _log_of(request) as descriptor:
        queue = JobQueue(request.root)
        supervisor = _Supervisor(WorkerParts(request=request, place=place, log=descriptor, queue=queue))
        try:
            supervisor.start_first()
            ready(place.address)
            supervisor.run()
            _log.info("ending")  # how a server is meant to end
        except KeyboardInterrupt:
            _log.info("ending before it served")
        finally:
            try:
                supervisor.stop()
            except KeyboardInterrupt:  # the second one
                supervisor.kill()


def raise_files_limit() -> int:
    """Raise this process's limit on open files as far as the system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_for(files: int, requested: int) -> int:
    """How many connections this many descriptors are enough for, at most ``requested``."""
    if files == resource.RLIM_INFINITY:
        return requested
    return min(requested, max(_FEWEST_CONNECTIONS, (files - _FILES_KEPT) // _FILES_EACH))


class _Supervisor:
    """Keeps the jobs going while granian serves.

    No single job, channel or full disk ends it: failures are logged and tried again later.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._queue = parts.queue
        self._granian: ForkProcess | None = None
        self._started_s = 0.0
        self._failures = 0
        self._cleaned_s = -_CLEAN_S

    def start(self) -> None:
        """Start granian, and wait until one of its workers listens, or it has ended."""
        self._started_s = time.monotonic()
        process = _fork.Process(target=_serve_requests, args=(self._parts, os.getpid()))
        with signals_held():
            process.start()
            self._granian = process
        while not self._parts.place.has_listener():
            if multiprocessing.connection.wait([process.sentinel], timeout=_LISTEN_S):
                return

    def start_first(self) -> None:
        """Start granian. Raises ChannelToolsError if that fails."""
        self.start()
        granian = self._granian
        if granian is not None and granian.exitcode is not None:
            message = f"the web server ended as soon as it started, with exit code {granian.exitcode}"
            raise ChannelToolsError(message, hint="the lines above say why")

    def run(self) -> None:
        """Keep all going until a signal asks to end. Raises ChannelToolsError if granian ends by itself."""
        with signals_noted() as noted:
            wait_s = 0.0
            while not noted.heard:
                wait_s = self._run_once(noted, wait_s)

    def _run_once(self, noted: NotedSignals, wait_s: float) -> float:
        """Wait for something to do, and do it; returns how long to wait for the next."""
        granian = self._granian
        assert granian is not None  # noqa: S101 - start has been called
        ready = multiprocessing.connection.wait(
            [noted.arriving, granian.sentinel, *self._queue.waitables], timeout=wait_s
        )
        if noted.arriving in ready:
            noted.drain()
        if granian.sentinel in ready and not noted.heard:
            self._start_again(granian)
        steps = (functools.partial(self._queue.handle, ready), self._clean)
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
        return False

    def _start_again(self, ended: ForkProcess) -> None:
        """Start granian again. Raises ChannelToolsError if it ended as soon as it started, several times in a row."""
        ended.join()
        code = ended.exitcode or 0  # negative: the number of the signal that killed it
        failed_early = code > 0 and time.monotonic() - self._started_s < _EARLY_S
        self._failures = self._failures + 1 if failed_early else 0
        if self._failures >= _FAILURES_LIMIT:
            message = (
                f"the web server ended {self._failures} times in a row within {_EARLY_S:g} s of its start, the last "
                f"time with exit code {code}"
            )
            raise ChannelToolsError(message, hint="the lines above say why")
        _log.warning("the web server ended with exit code %s and is started again", code)
        self.start()

    def stop(self) -> None:
        """End granian, which ends its workers when their responses are complete, then the jobs."""
        if self._granian is not None:
            self._granian.terminate()
            self._granian.join(_SHUTDOWN_S + 5)
            self.kill()
        self._queue.stop(_JOBS_S)

    def kill(self) -> None:
        """End granian, and with it the workers, without waiting for responses."""
        if self._granian is not None:
            self._granian.kill()
            self._granian.join()

    def _clean(self) -> None:
        """Remove abandoned uploads from time to time."""
        if time.monotonic() - self._cleaned_s < _CLEAN_S:
            return
        self._cleaned_s = time.monotonic()
        for removed in self._queue.store.remove_stale():
            _log.info("removed the abandoned upload %s", removed)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where to listen: an IP address and a port."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """The address for people."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def has_listener(self) -> bool:
        """Whether a process accepts connections there."""
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as connection:
            return connection.connect_ex((self.host, self.port)) == 0


def _place_of(request: ServeRequest) -> _Place:
    """The address to listen on, with a free port for 0. Raises UsageError if that is not possible."""
    try:
        family, kind, _protocol, _name, address = socket.getaddrinfo(
            request.host, request.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
            host, port = listener.getsockname()[:2]
    except (OSError, UnicodeError) as err:
        reason = (err.strerror if isinstance(err, OSError) else None) or "it is not a host name or address"
        message = f"{request.host}:{request.port}: cannot listen on this address: {reason}"
        raise UsageError(message, hint="choose another --host or --port; 0 takes any free port") from None
    return _Place(host=host, port=port)


@contextlib.contextmanager
def _log_of(request: ServeRequest) -> Iterator[int]:
    if request.access_log is None:
        yield sys.stderr.fileno()
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # do not wait for a pipe's reader
        descriptor = os.open(request.access_log, flags, 0o640)
    except OSError as err:
        message = f"{request.access_log}: cannot be written: {err.strerror}"
        raise UsageError(message, hint="choose another --access-log") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerParts:
    """What the supervising process passes on; ``log`` is an open descriptor."""

    request: ServeRequest
    place: _Place
    log: int
    queue: JobQueue


def _serve_requests(parts: WorkerParts, parent: int) -> None:
    """Run granian; exits without interpreter teardown, see cli/entry.py."""
    code = 1
    try:
        parts.queue.close_in_child()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # until granian has its own handlers
        signals_released()
        end_with_parent(parent, signal.SIGTERM)
        multiprocessing.set_start_method("fork", force=True)  # else granian takes another on Python 3.14
        _run_granian(parts)
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except Exception:  # noqa: BLE001 - the last resort: the parent sees the exit code
        _log.exception("the web server failed: this is a defect in channel_tools")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run_granian(parts: WorkerParts) -> None:
    request, granian = parts.request, os.getpid()
    server = Granian(
        "channel_tools",
        address=parts.place.host,
        port=parts.place.port,
        interface=Interfaces.ASGI,
        workers=request.worker_count,
        loop=Loops.asyncio,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=connections_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0], request.connections),
        # an idle connection counts as one whose header is awaited
        http1_settings=HTTP1Settings(header_read_timeout=_HEADER_TIME_MS, max_buffer_size=_HEADER_BYTES),
        respawn_failed_workers=True,
        workers_kill_timeout=_SHUTDOWN_S,
        log_level=LogLevels.error,
        log_dictconfig={"handlers": {}, "loggers": {"_granian": {"propagate": True}}},
    )
    server.serve(target_loader=lambda: _worker_application(parts, granian), wrap_loader=False)


def _worker_application(parts: WorkerParts, granian: int) -> ASGIApp:
    """What a worker runs; called in it. It ends with granian, which otherwise would leave it serving."""
    end_with_parent(granian, signal.SIGKILL)
    root = parts.request.root
    log = AccessLog(parts.log)
    gate = Gatekeeper(_tokens_file(parts.request), parse_public(parts.request.public))
    guard = Guard(gate)
    uploads = UploadApi(
        root=root, guard=guard, runner=JobRunner(parts.queue.sending), store=parts.queue.store, limits=Limits()
    )
    application: ASGIApp = ChannelServer(
        gate=gate,
        files=FileCache(root),
        log=log,
        routes=make_routes(root=root, log=log, uploads=uploads.routes()),
    )
    if proxies := parts.request.proxies:
        # granian reads addresses and networks with no bits set below a network's
        networks = [proxy if proxy == "*" else str(ipaddress.ip_network(proxy, strict=False)) for proxy in proxies]
        application = wrap_asgi_with_proxy_headers(application, trusted_hosts=networks)
    return application
