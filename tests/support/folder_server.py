# SPDX-License-Identifier: BSD-3-Clause
"""A folder served over HTTP or HTTPS on loopback, as static hosting does it."""

from __future__ import annotations

import functools
import http
import http.server
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server_thread import in_thread


class _Handler(http.server.SimpleHTTPRequestHandler):
    """A static server that answers revalidation as nginx does: rattler refuses a 304 that names no validator."""

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        if code == http.HTTPStatus.NOT_MODIFIED:
            self.send_header("Last-Modified", self.headers["If-Modified-Since"])

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  (the name that http.server gives it)
        del format, arguments


@contextmanager
def serve_folder(folder: Path, *, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of the folder while the block runs; with ``tls``, over HTTPS, as localhost."""
    handler = functools.partial(_Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        # the handshake waits for the client, so that belongs to the connection's own thread
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with in_thread(server) as place:
        yield place if tls is None else place.replace("http://127.0.0.1", "https://localhost")
