# SPDX-License-Identifier: BSD-3-Clause
"""Requests to the server: bytes from a socket, through everything that a worker has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import uvicorn

from channel_tools.channel import Foundation, create_channel
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.publish.server.protocol import API, ErrorResponse, encode, set_request
from channel_tools.requests.serve import ServeRequest
from channel_tools.serve import server
from channel_tools.serve.access.tokens import create_token, default_tokens_file
from channel_tools.serve.admission import Admission
from channel_tools.serve.connection import Connection, limited
from channel_tools.serve.metrics import AccessLog, Metrics
from channel_tools.serve.server import WorkerParts
from channel_tools.serve.uploads.jobs import JobQueue, JobRunner
from channel_tools.serve.uploads.store import Job, State
from tests.fuzz.targets import Target
from tests.support.malformed import FILE_NAME, SUBDIR, sound

_TOKEN = b"@TOKEN@"
_TIMEOUT_S = 10.0


class _NoJobs(JobRunner):
    """In the place of the process that carries jobs out: each has failed at once."""

    def start(self, job: Job) -> None:
        job.set_state(State(state="failed", error=ErrorResponse(kind="ChannelError", message="no jobs here")))


class Requests(Target):
    """No request is answered by 500, none is left without an end, and none raises anything behind the answer."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        root = folder / "channels"
        root.mkdir(parents=True)
        create_channel(root / "ours", Foundation(kind="registry"))
        tokens = default_tokens_file(root)
        token = create_token(
            tokens, name="fuzz", channels=None, labels=None, access="write", expires_s=None, clock=lambda: 1e9
        )
        self._token = token[0].encode()
        request = ServeRequest(folder=root, port=0, workers=1, public=("open",))
        metrics = mock.create_autospec(Metrics, instance=True)  # the real one is for one server in a process
        metrics.exposition.return_value = (b"", "text/plain")
        self._unused = socket.socket()
        self._queue = JobQueue(root, self._unused, metrics)
        parts = WorkerParts(request=request, listener=self._unused, log=-1, metrics=metrics, queue=self._queue)
        self._loop = asyncio.new_event_loop()
        self._problems: list[str] = []
        self._loop.set_exception_handler(lambda _loop, context: self._problems.append(repr(context)))
        with mock.patch.object(server, "JobRunner", _NoJobs):
            application = server._application(parts, mock.create_autospec(AccessLog, instance=True))
        self._config = uvicorn.Config(limited(application), ws="none", lifespan="off", log_config=None)
        self._config.load()
        self._server = uvicorn.Server(self._config)
        self._admission = Admission(total=9, each=9)

    def seeds(self) -> Iterator[bytes]:
        file = self.folder / SUBDIR / FILE_NAME
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(sound())
        packages = PackageSet(
            name="x",
            files=(
                PackageFile(
                    subdir=SUBDIR, file_name=FILE_NAME, path=file, sha256="0" * 64, size_bytes=9, foundation=False
                ),
            ),
            foundation=Foundation(kind="registry"),
        )
        documents = {
            "sets": encode(set_request(packages, "main")),
            "plan": encode(set_request(packages, "main")),
            "promote": b'{"source": "testing", "label": "main", "keys": ["linux-64/a-1-0.conda"], "schema": 1}',
            "yank": b'{"label": "main", "keys": ["linux-64/a-1-0.conda"], "reason": "r", "schema": 1}',
            "hotfix": b'{"label": "main", "patches": {"noarch": {"packages": {}}}, "replace": false, "schema": 1}',
            "retain": json.dumps(
                {
                    "label": "main",
                    "keep": 1,
                    "older_than_s": 1.0,
                    "locked_files": [],
                    "locked_hashes": [],
                    "grace_s": 1.0,
                }
                | {"dry_run": True, "schema": 1}
            ).encode(),
        }
        head = b"Host: x\r\nAuthorization: Bearer " + _TOKEN + b"\r\n"
        for kind, body in documents.items():
            address = f"{API}/ours/{kind}".encode()
            yield b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n%s" % (address, head, len(body), body)
        for line in (
            b"GET /health", b"GET /metrics", b"GET /ours/noarch/repodata.json", b"GET /t/x/ours/noarch/repodata.json",
            b"HEAD /ours/label/a/noarch/current_repodata.json", b"GET %s/ours/labels" % API.encode(),
            b"GET %s/ours/labels/main/packages" % API.encode(), b"GET %s/ours/jobs/x?wait=nan" % API.encode(),
            b"DELETE %s/ours/sets/x" % API.encode(), b"GET /open/noarch/repodata.json",
        ):  # fmt: skip
            yield line + b" HTTP/1.1\r\n" + head + b'Range: bytes=0-9\r\nIf-None-Match: "x"\r\n\r\n'
        body = sound()
        yield b"PUT /ours/%s/%s HTTP/1.1\r\n%sContent-Length: 30\r\n\r\n%s" % (
            SUBDIR.encode(),
            FILE_NAME.encode(),
            head,
            body[:30],
        )
        chunks = b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n"
        yield b"POST /api/channels/ours/upload/a-1-0.conda HTTP/1.1\r\n" + head + chunks
        yield b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3

    def run(self, data: bytes) -> None:
        self._problems.clear()
        said = self._loop.run_until_complete(self._said(data.replace(_TOKEN, self._token)))
        assert not self._problems, self._problems
        assert not re.search(rb"^HTTP/1\.1 500", said, re.MULTILINE), said

    async def _said(self, data: bytes) -> bytes:
        ours, theirs = socket.socketpair()
        transport, _protocol = await self._loop.connect_accepted_socket(self._protocol, theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                writer.write_eof()
            async with asyncio.timeout(_TIMEOUT_S):
                with contextlib.suppress(ConnectionError):
                    return await reader.read()
                return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            transport.abort()
            while self._server.server_state.tasks:
                await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)

    def close(self) -> None:
        """End the loop and what it left."""
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._queue.stop(0.0)
        self._unused.close()
        super().close()

    def _protocol(self) -> Connection:
        return Connection(
            admission=self._admission, config=self._config, server_state=self._server.server_state, app_state={}
        )
