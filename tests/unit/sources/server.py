# SPDX-License-Identifier: BSD-3-Clause
"""A small HTTP server whose manners each test chooses: ranges, lies about length, other bytes, cut connections."""

from __future__ import annotations

import http
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Served:
    """What one path gives."""

    content: bytes
    status: int = 200
    ranges: bool = True
    announced: int | None = None
    """The Content-Length that is told instead of the true one."""
    cut_after: list[int] = field(default_factory=list)
    """For as many requests: how many bytes come before the connection ends."""


@dataclass(kw_only=True, slots=True)
class Host:
    """A running server: its address, what it serves, and the requests it saw as path and Range."""

    address: str
    paths: dict[str, Served]
    requests: list[tuple[str, str | None]]


@contextmanager
def serving(paths: dict[str, Served]) -> Iterator[Host]:
    """Serve ``paths`` on loopback while the block runs."""
    requests: list[tuple[str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Range"]))
            served = paths.get(self.path)
            if served is None:
                self.send_error(http.HTTPStatus.NOT_FOUND)
                return
            _answer(self, served)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  (http.server's name for it)
            del format, arguments

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Host(address=f"http://127.0.0.1:{server.server_address[1]}", paths=paths, requests=requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: http.server.BaseHTTPRequestHandler, served: Served) -> None:
    content, start = served.content, 0
    asked = re.fullmatch(r"bytes=(\d+)-", handler.headers["Range"] or "")
    if served.status != http.HTTPStatus.OK:
        handler.send_error(served.status)
        return
    if asked and served.ranges:
        start = int(asked[1])
        if start >= len(content):
            handler.send_error(http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        handler.send_response(http.HTTPStatus.PARTIAL_CONTENT)
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    else:
        handler.send_response(http.HTTPStatus.OK)
    rest = content[start:]
    announced = len(rest) if served.announced is None else served.announced
    handler.send_header("Content-Length", str(announced))
    handler.end_headers()
    handler.wfile.write(rest[: served.cut_after.pop(0)] if served.cut_after else rest)
    handler.close_connection = True
