# SPDX-License-Identifier: BSD-3-Clause
"""One of the processes that respond: uvicorn with our application and our connections."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import uvicorn

from channel_tools.serve.access.guard import Gatekeeper, Guard, parse_public
from channel_tools.serve.admission import Admission, connections_for
from channel_tools.serve.connection import Connection, limited
from channel_tools.serve.metrics import AccessLog
from channel_tools.serve.reads.application import ChannelServer, make_routes
from channel_tools.serve.reads.file_cache import FileCache
from channel_tools.serve.uploads.api import UploadApi, UploadContext
from channel_tools.serve.uploads.checks import Limits
from channel_tools.serve.uploads.jobs import JobRunner
from channel_tools.serve.uploads.receive import Documents
from channel_tools.serve.uploads.store import JobStore, jobs_folder
from channel_tools.serve.uploads.third_party import ThirdPartyUploads
from channel_tools.system.workers import end_with_parent, signals_released

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp

    from channel_tools.serve.metrics import Metrics
    from channel_tools.serve.server import ServeSettings

BACKLOG = 2048
SHUTDOWN_S = 30
_KEEP_ALIVE_S = 75


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerParts:
    """What a worker gets from the supervising process; ``log`` is an open descriptor."""

    settings: ServeSettings
    listener: socket.socket
    log: int
    metrics: Metrics
    job_socket: socket.socket


def work(parts: WorkerParts, parent: int) -> None:
    """The life of a worker; it ends without interpreter teardown, see cli/entry.py."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signals_released()
        end_with_parent(parent, signal.SIGTERM)
        _run(parts)
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except Exception:  # the last resort: the parent sees the exit code
        logging.getLogger(__name__).exception("a worker failed: this is a defect in channel_tools")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run(parts: WorkerParts) -> None:
    log = AccessLog(parts.log, lost=lambda count: parts.metrics.count_event("log_line_lost", count))

    async def flush() -> None:
        log.flush()

    server = uvicorn.Server(_uvicorn_config(parts, limited(_application(parts, log)), flush))
    # uvicorn handles the signal while it serves, and raises it again afterwards, which must not kill what comes then
    signal.signal(signal.SIGTERM, lambda _signal, _frame: setattr(server, "should_exit", True))
    try:
        server.run(sockets=[parts.listener])
    finally:
        log.close()


def _application(parts: WorkerParts, log: AccessLog) -> ChannelServer:
    root = parts.settings.root
    gate = Gatekeeper(parts.settings.tokens_file, parse_public(parts.settings.public))
    guard = Guard(gate)
    limits = Limits()
    uploads = UploadContext(
        root=root,
        guard=guard,
        runner=JobRunner(parts.job_socket),
        store=JobStore(
            jobs_folder(root), clock=time.time, quarantined=lambda: parts.metrics.count_event("job_quarantined")
        ),
        limits=limits,
        receiving=asyncio.Semaphore(limits.at_once),
        documents=Documents(limits),
    )
    routes = [*UploadApi(uploads).routes(), *ThirdPartyUploads(uploads).routes()]
    return ChannelServer(
        gate=gate,
        files=FileCache(root),
        log=log,
        metrics=parts.metrics,
        routes=make_routes(root=root, guard=guard, metrics=parts.metrics, uploads=routes),
    )


def _uvicorn_config(parts: WorkerParts, app: ASGIApp, flush: Callable[[], Awaitable[None]]) -> uvicorn.Config:
    """``flush`` is called once a second."""
    settings = parts.settings
    total = connections_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0], settings.connections)
    each = (
        min(settings.connections_each, max(1, total // 4))
        if total < settings.connections
        else settings.connections_each
    )
    admission = Admission(total=total, each=each, shared=frozenset(settings.proxies), event=parts.metrics.count_event)

    def connection(**given: Any) -> Connection:  # noqa: ANN401 - passed on
        return Connection(admission=admission, **given)

    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", connection),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.ERROR,  # below it, uvicorn reports every malformed request, which anybody can send
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        callback_notify=flush,
        timeout_notify=0,
    )
