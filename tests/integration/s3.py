# SPDX-License-Identifier: BSD-3-Clause
"""An S3 server on loopback: moto's, made as strict as the real one where moto is not.

Conditional writes are decided and done in one step, and a body that is not what its MD5 or signature says is refused.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import botocore.config
import botocore.loaders
import botocore.session
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

ACCESS_KEY = "AKIATOYTOYTOYTOYTOY"
SECRET_KEY = "toy-secret-that-must-be-seen-nowhere"  # noqa: S105 - of a server on loopback
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>refused</Message></Error>"

Answer = tuple[str, bytes]


@dataclass(kw_only=True)
class Request:
    """A request before it is served; what ``watch`` changes in it has happened on the way."""

    method: str
    path: str
    environ: WSGIEnvironment
    body: bytes

    def drop(self) -> None:
        """Cut the connection."""
        self.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


Watch = Callable[[Request], Answer | None]
After = Callable[[Request, list[bytes]], list[bytes]]

_ONE_WRITE = threading.Lock()
"""moto's buckets belong to the process, whichever server they are reached through."""


class StrictS3:
    """The application, and what was asked of it: (method, path with query).

    ``watch`` sees each request before it is served and may answer in the server's place, ``after`` sees each answer and
    gives what is sent of it. ``conditional`` off makes a server that does not know conditional writes.
    """

    def __init__(self) -> None:
        self._app: WSGIApplication = create_backend_app("s3")
        self.asked: list[tuple[str, str]] = []
        self.watch: Watch | None = None
        self.after: After | None = None
        self.conditional = True

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        query = environ.get("QUERY_STRING", "")
        request = Request(
            method=environ["REQUEST_METHOD"],
            path=environ["PATH_INFO"] + (f"?{query}" if query else ""),
            environ=environ,
            body=environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
        )
        self.asked.append((request.method, request.path))
        after = self.after
        answer = self.watch(request) if self.watch is not None else None
        if answer is None and (code := _refusal(request)) is not None:
            answer = ("400 Bad Request", ERROR % code)
        if answer is not None:
            start(answer[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(answer[1])))])
            return [answer[1]]
        served = self._serve(request, start)
        return served if after is None else after(request, served)

    def _serve(self, request: Request, start: StartResponse) -> list[bytes]:
        request.environ["wsgi.input"] = io.BytesIO(request.body)
        if not self.conditional:
            request.environ.pop("HTTP_IF_NONE_MATCH", None)
            request.environ.pop("HTTP_IF_MATCH", None)
        if request.method in {"GET", "HEAD"}:
            return list(self._app(request.environ, start))
        with _ONE_WRITE:
            return list(self._app(request.environ, start))

    @contextlib.contextmanager
    def watched(self, watch: Watch | None = None, after: After | None = None) -> Iterator[None]:
        """Let ``watch`` and ``after`` see the requests of the block."""
        self.watch, self.after = watch, after
        try:
            yield
        finally:
            self.watch = self.after = None


def _refusal(request: Request) -> bytes | None:
    md5 = request.environ.get("HTTP_CONTENT_MD5")
    if md5 and base64.b64decode(md5) != hashlib.md5(request.body, usedforsecurity=False).digest():
        return b"BadDigest"
    said = request.environ.get("HTTP_X_AMZ_CONTENT_SHA256", "UNSIGNED-PAYLOAD")
    if len(said) == 64 and said != hashlib.sha256(request.body).hexdigest():
        return b"XAmzContentSHA256Mismatch"
    return None


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Not on the terminal."""


@contextlib.contextmanager
def serve_s3() -> Iterator[tuple[str, StrictS3]]:
    """Serve on loopback for as long as the block runs; gives the endpoint and the application."""
    app = StrictS3()
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def parse_models_once() -> None:
    """Let all clients of this process share what botocore reads from its files, which takes a tenth of a second."""
    if not hasattr(botocore.loaders.create_loader, "cache_info"):
        botocore.loaders.create_loader = functools.cache(botocore.loaders.create_loader)


def s3_client(endpoint: str) -> S3Client:
    """A client of the test's own, beside the code under test."""
    client: Any = botocore.session.Session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=botocore.config.Config(request_checksum_calculation="when_required", retries={"total_max_attempts": 1}),
    )
    found: S3Client = client
    return found


if __name__ == "__main__":  # for programs that fork, which a server's threads would disturb; ends with its input
    with serve_s3() as (address, _):
        print(address, flush=True)  # noqa: T201 - read by who started it
        sys.stdin.read()
