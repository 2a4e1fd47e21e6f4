# SPDX-License-Identifier: BSD-3-Clause
"""One of the processes that answer: uvicorn with our application, protocol and housekeeping."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from channel_tools.pool import end_with_parent
from channel_tools.serve.access import Gatekeeper, parse_public
from channel_tools.serve.accesslog import AccessLog
from channel_tools.serve.guard import Guard
from channel_tools.serve.hotfiles import HotFiles
from channel_tools.serve.protocol import ServingProtocol
from channel_tools.serve.reads import ChannelServer
from channel_tools.serve.routes import make_routes
from channel_tools.serve.uploads.api import UploadApi
from channel_tools.serve.uploads.changes import ChangeApi
from channel_tools.serve.uploads.checks import Limits
from channel_tools.serve.uploads.foreign import ForeignUploads
from channel_tools.serve.uploads.jobs import JobRunner
from channel_tools.serve.uploads.store import JobStore, jobs_folder

if TYPE_CHECKING:
    import socket

    from channel_tools.serve.metrics import Metrics
    from channel_tools.serve.settings import ServeSettings

BACKLOG = 2048
SHUTDOWN_S = 30
_KEEP_ALIVE_S = 75
_SWEEP_TICKS = 20  # of uvicorn's 0.1 s
_FLUSH_TICKS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerParts:
    """What a worker gets from the process that watches it; ``log`` is an open descriptor."""

    settings: ServeSettings
    listener: socket.socket
    log: int
    metrics: Metrics
    asking: socket.socket


def work(parts: WorkerParts, parent: int) -> None:
    """The life of a worker; it ends without interpreter teardown, see cli/entry.py."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to end
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent(parent, signal.SIGTERM)
        _Worker(parts).run(sockets=[parts.listener])
        code = 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else 1
    except Exception:  # the last resort: the parent sees the exit code
        logging.getLogger(__name__).exception("a worker failed: this is a defect in channel_tools")
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Worker(uvicorn.Server):
    """uvicorn's server with our housekeeping on its clock."""

    def __init__(self, parts: WorkerParts) -> None:
        root = parts.settings.root
        gate = Gatekeeper(parts.settings.tokens_file, parse_public(parts.settings.public))
        guard, runner = Guard(gate), JobRunner(parts.asking)
        store, limits = JobStore(jobs_folder(root), clock=time.time), Limits()
        apis = [api(root, guard, runner, store, limits) for api in (UploadApi, ChangeApi, ForeignUploads)]
        uploads = [route for api in apis for route in api.routes()]
        self._access_log = AccessLog(parts.log)
        self._metrics = parts.metrics
        app = ChannelServer(
            gate=gate,
            files=HotFiles(root),
            log=self._access_log,
            metrics=parts.metrics,
            routes=make_routes(root=root, guard=guard, metrics=parts.metrics, uploads=uploads),
        )
        super().__init__(_uvicorn_config(parts.settings, app))

    def handle_exit(self, sig: int, frame: object) -> None:
        """End in order, and do not die of the signal afterwards as uvicorn would have it."""
        del sig, frame
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % _FLUSH_TICKS == 0:
            self._flush()
        if counter % _SWEEP_TICKS == 0:
            now_s = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                if isinstance(connection, ServingProtocol):
                    connection.sweep(now_s)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is under way."""
        await super().shutdown(sockets)
        self._flush()

    def _flush(self) -> None:
        self._access_log.flush()
        self._metrics.flush()


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
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
