# SPDX-License-Identifier: BSD-3-Clause
"""An S3 server on loopback: moto's, made as strict as the real one where moto is not.

Conditional writes are decided and done in one step, and a body that is not what its MD5 or signature says is refused.
``watch`` sees every request before it is served and may delay it, answer in the server's place or raise to cut it off.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import botocore.config
import botocore.session
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

ACCESS_KEY = "AKIATOYTOYTOYTOYTOY"
SECRET_KEY = "toy-secret-that-must-be-seen-nowhere"  # noqa: S105 - of a server on loopback
_REFUSED = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>refused</Message></Error>"

Watch = Callable[[WSGIEnvironment], "Answer | None"]
Answer = tuple[str, bytes]


class StrictS3:
    """The application, and what was asked of it: (method, path with query)."""

    def __init__(self) -> None:
        self._app: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        self._one_write = threading.Lock()
        self.asked: list[tuple[str, str]] = []
        self.watch: Watch | None = None
        self.after: Watch | None = None
        self.conditional = True

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        self.asked.append((method, f"{environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"))
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        if self.watch is not None and (answer := self.watch(environ)) is not None:
            return _answer(start, *answer)
        if (code := _refusal(environ, environ["wsgi.input"].getvalue())) is not None:
            return _answer(start, "400 Bad Request", _REFUSED % code)
        if not self.conditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
            environ.pop("HTTP_IF_MATCH", None)
        if method in {"GET", "HEAD"}:
            return self._app(environ, start)
        with self._one_write:
            served = list(self._app(environ, start))
        if self.after is not None:
            self.after(environ)
        return served

    @contextlib.contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Let ``watch`` see the requests of the block."""
        self.watch = watch
        try:
            yield
        finally:
            self.watch = None


def _refusal(environ: WSGIEnvironment, body: bytes) -> bytes | None:
    md5 = environ.get("HTTP_CONTENT_MD5")
    if md5 and base64.b64decode(md5) != hashlib.md5(body, usedforsecurity=False).digest():
        return b"BadDigest"
    said = environ.get("HTTP_X_AMZ_CONTENT_SHA256", "UNSIGNED-PAYLOAD")
    if len(said) == 64 and said != hashlib.sha256(body).hexdigest():
        return b"XAmzContentSHA256Mismatch"
    return None


def _answer(start: StartResponse, status: str, body: bytes) -> list[bytes]:
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


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
