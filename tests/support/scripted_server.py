# SPDX-License-Identifier: BSD-3-Clause
"""A small HTTP server that answers what a test wants, and keeps what it was asked."""

from __future__ import annotations

import http.server
import socketserver
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tests.support.server_thread import in_thread

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Asked:
    """A request; ``path`` is the whole address where the server is used as a proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    peer_port: int


@dataclass
class ScriptedServer:
    """The reply to a request, or None to break the connection off."""

    answer: Callable[[Asked], Reply | None]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def origin(self) -> str:
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"


_Server = TypeVar("_Server", bound=ScriptedServer)


@contextmanager
def scripted(server: _Server) -> Iterator[_Server]:
    """Run the server on loopback while the block runs."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(self.command, self.path, dict(self.headers), self.rfile.read(length), self.client_address[1])
            server.asked.append(asked)
            reply = server.answer(asked)
            if reply is None:
                self.close_connection = True
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            if asked.method != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815  (the names that http.server gives them)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
            del format, args

    class Threading(socketserver.ThreadingMixIn, http.server.HTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            del request, client_address

    running = Threading(("127.0.0.1", 0), Handler)
    server.port = running.server_port
    if server.tls is not None:
        running.socket = server.tls.wrap_socket(running.socket, server_side=True)
    with in_thread(running):
        yield server
