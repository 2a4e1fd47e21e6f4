# SPDX-License-Identifier: BSD-3-Clause
"""The server's ASGI application: reads are answered here, straight from the scope, all else by Starlette's routes.

Most requests ask whether an index changed, and a framework's routing would cost several times as much as the response.

Which response a GET for a file has: unchanged, whole, or some of its bytes (RFC 9110, sections 13 and 14).

A ``Range`` header that is not understood, or asks for several ranges, is ignored: the whole file is a correct response.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from channel_tools.publish.server.protocol import ErrorResponse
from channel_tools.serve.access.guard import (
    CHALLENGE,
    NOT_CACHED,
    RETRY_AFTER_S,
    RejectedError,
    busy_response,
    error_response,
    json_response,
    tokens_of,
)
from channel_tools.serve.addresses import RESERVED, masked, parse_path, split_token
from channel_tools.serve.files import FileReplacedError, open_unchanged
from channel_tools.serve.transfer import CutResponseError, RequestBody, SlowClientError, send_part
from channel_tools.system.errors import (
    NO_MEANS_ERRNOS,
    ChannelToolsError,
    DiskFullError,
    WithoutMeansError,
    error_from_os,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from channel_tools.serve.access.guard import Gatekeeper
    from channel_tools.serve.access_log import AccessLog
    from channel_tools.serve.files import CachedFile, FileCache, Headers

_BAD_REQUEST = 400
_UNAUTHORIZED = 401
_NOT_FOUND = 404
_REQUEST_TIMEOUT = 408
_UNAVAILABLE = 503
_CLIENT_GONE = 499
"""As in nginx: the client closed the connection before it got a response."""
_ATTEMPTS = 3
_FLUSH_S = 1.0


OK = 200
PARTIAL_CONTENT = 206
NOT_MODIFIED = 304
RANGE_NOT_SATISFIABLE = 416
_RANGE = re.compile(r"bytes=[ \t]*(\d{0,18})-(\d{0,18})[ \t]*")


@dataclass(slots=True)
class _Outcome:
    """What is logged about a response; ``of_file``: a readable file is asked for, whose name is no secret."""

    of_file: bool = False
    status: int = 0
    size_bytes: int = 0
    token: str | None = None


class ChannelServer:
    """The ASGI application: files of channels, and ``routes`` for everything else."""

    def __init__(self, *, gate: Gatekeeper, files: FileCache, log: AccessLog, routes: ASGIApp) -> None:
        self._gate = gate
        self._files = files
        self._log = log
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request, then log it."""
        if scope["type"] != "http":
            await self._routes(scope, receive, send)  # the worker's start and end
            return
        started_s = time.perf_counter()
        method: str = scope["method"]
        token, path = split_token(scope["path"])
        outcome = _Outcome()
        try:
            if method in {"GET", "HEAD"} and path[1:].partition("/")[0] not in RESERVED:
                await self._read(scope, receive, send, path, token, outcome)
            else:
                body = RequestBody(receive)

                async def noting(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        outcome.status = message["status"]
                        if outcome.status >= _BAD_REQUEST:
                            await body.drop_rest()
                    elif message["type"] == "http.response.body":
                        outcome.size_bytes += len(message.get("body", b""))
                    await send(message)

                await self._routes(scope, body.receive, noting)
                outcome.token = scope.get("channel_tools.token")
        except WithoutMeansError:
            await _reject(send, outcome, _UNAVAILABLE, head=method == "HEAD")
        except (ConnectionError, CutResponseError):
            outcome.status = _CLIENT_GONE  # granian closes the connection, since the response is not complete
        finally:
            if outcome.of_file and outcome.status < _BAD_REQUEST:
                shown_path = path if token is None else f"/t/***{path}"
            else:
                shown_path = masked(scope["path"])
            self._log.add(
                _address(scope),
                method,
                shown_path,
                status=outcome.status,
                size_bytes=outcome.size_bytes,
                seconds=time.perf_counter() - started_s,
                token=outcome.token,
            )

    async def _read(
        self, scope: Scope, receive: Receive, send: Send, path: str, path_token: str | None, outcome: _Outcome
    ) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        head = scope["method"] == "HEAD"
        channel_file = parse_path(path)
        if channel_file is None:
            await _reject(send, outcome, _NOT_FOUND, head=head)
            return
        public = self._gate.is_public(channel_file.channel, channel_file.label)
        if not public:
            tokens = tokens_of(path_token, headers.get(b"authorization"), headers.get(b"x-api-key"))
            record = self._gate.identify(tokens)
            outcome.token = record.id if record else None
            if not self._gate.may(record, "read", channel_file.channel, channel_file.label):
                await _reject(send, outcome, _UNAUTHORIZED, head=head)
                return
        if head:
            headers.pop(b"range", None)  # it has a meaning for GET only
        outcome.of_file = True
        for _attempt in range(_ATTEMPTS):
            file = self._files.find(channel_file)
            if file is None:
                break
            response = respond_to_read(file, headers, public=public)
            part = range(0) if head else response.part
            outcome.status, outcome.size_bytes = response.status, len(part)
            if file.content is not None or not part:
                start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
                await send(start)
                await send({"type": "http.response.body", "body": (file.content or b"")[part.start : part.stop]})
                return
            try:
                descriptor = open_unchanged(file)
            except FileReplacedError:
                continue
            try:
                await send_part(
                    scope,
                    receive,
                    send,
                    status=response.status,
                    headers=response.headers,
                    descriptor=descriptor,
                    part=part,
                )
            finally:
                os.close(descriptor)
            return
        await _reject(send, outcome, _NOT_FOUND, head=head)


def _address(scope: Scope) -> str:
    client = scope["client"]
    return client[0] if client else ""


async def _reject(send: Send, outcome: _Outcome, status: int, *, head: bool) -> None:
    """Send a short text response that must not be cached; without its body for ``head``."""
    more: list[tuple[bytes, bytes]] = []
    if status == _UNAUTHORIZED:
        body, more = b"a valid token for this channel and label is required\n", CHALLENGE
    elif status == _UNAVAILABLE:
        body, more = b"the server is overloaded\n", [(b"retry-after", b"%d" % RETRY_AFTER_S)]
    else:
        body = b"there is no such file\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *more,
    ]
    outcome.status, outcome.size_bytes = status, 0
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})


def make_routes(*, root: Path, log: AccessLog, uploads: Sequence[Route]) -> Starlette:
    """The routes behind ChannelServer: health, publishing. ``log`` is written each second, and at the end."""

    @contextlib.asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        flushing = asyncio.create_task(_flush_regularly(log))
        try:
            yield
        finally:
            flushing.cancel()
            log.flush()

    async def health(_request: Request) -> Response:
        if root.is_dir():
            return JSONResponse({"status": "ok"}, headers=NOT_CACHED)
        return JSONResponse(
            {"status": "the folder of the channels does not exist"}, status_code=503, headers=NOT_CACHED
        )

    async def failed(_request: Request, error: Exception) -> Response:
        if not isinstance(error, ChannelToolsError):
            raise error
        message = str(error).replace(f"{root}/", "").replace(str(root), "the server")
        return error_response(error, message)

    async def denied(request: Request, error: Exception) -> Response:
        if not isinstance(error, OSError) or isinstance(error, ConnectionError):
            raise error
        told = error_from_os(error)
        if error.errno in NO_MEANS_ERRNOS or isinstance(told, DiskFullError):
            return await _without_means(request, error)
        return await failed(request, told)

    app = Starlette(
        routes=[Route("/health", health), *uploads],
        exception_handlers={
            RejectedError: _rejected,
            ChannelToolsError: failed,
            OSError: denied,
            SlowClientError: _too_slow,
            WithoutMeansError: _without_means,
        },
        lifespan=running,
    )
    app.router.redirect_slashes = False  # this server never redirects
    return app


async def _without_means(_request: Request, error: Exception) -> Response:
    """A lack of disk space, descriptors or memory is not a bug: the response says so, and clients may try again."""
    cause = error.__cause__ if isinstance(error, WithoutMeansError) else error
    number = cause.errno if isinstance(cause, OSError) else None
    if isinstance(error, OSError) and isinstance(error_from_os(error), DiskFullError):
        message = "the server has no space left on its disk"
        return error_response(DiskFullError(message, hint="ask who runs the server to free space"))
    if number in NO_MEANS_ERRNOS:
        return busy_response()
    raise error


async def _flush_regularly(log: AccessLog) -> None:
    while True:
        await asyncio.sleep(_FLUSH_S)
        log.flush()


async def _too_slow(_request: Request, error: Exception) -> Response:
    body = ErrorResponse(kind="ChannelToolsError", message=f"the request was given up: {error}", hint="send it again")
    return json_response(body, _REQUEST_TIMEOUT, headers={"connection": "close"})


async def _rejected(_request: Request, error: Exception) -> Response:
    if not isinstance(error, RejectedError):
        raise error
    return error.response


def parse_range(header: bytes, total: int) -> range | None:
    """The bytes of ``total`` that a ``Range`` header requests; an empty range if none of them is in the file.

    None means that the header must be ignored.

    >>> parse_range(b"bytes=2-4", 10), parse_range(b"bytes=-3", 10), parse_range(b"bytes=0-1,5-6", 10)
    (range(2, 5), range(7, 10), None)
    """
    matched = _RANGE.fullmatch(header.decode("latin-1").strip())
    if matched is None or not any(matched.groups()):
        return None
    first, last = matched.groups()
    if not first:
        return range(max(0, total - int(last)), total)
    if last and int(last) < int(first):
        return None
    return range(min(int(first), total), min(total, int(last) + 1 if last else total))


def is_unchanged(etag: bytes, modified: bytes, *, if_none_match: bytes | None, if_modified_since: bytes | None) -> bool:
    """Whether the client has this state of the file; like nginx, a date counts only if it is exactly the same."""
    if if_none_match is not None:
        tags = {tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")}
        return if_none_match.strip() == b"*" or etag in tags
    return if_modified_since is not None and if_modified_since.strip() == modified


def range_applies(etag: bytes, modified: bytes, if_range: bytes | None) -> bool:
    """Whether the ``Range`` of a request applies to this state of the file; weak tags never match."""
    return if_range is None or if_range.strip() in {etag, modified}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadResponse:
    """Status and headers of a response to a GET for a file, and which of its bytes are the body."""

    status: int
    headers: Headers
    part: range = range(0)


def respond_to_read(file: CachedFile, request: Mapping[bytes, bytes], *, public: bool) -> ReadResponse:
    """The response to a GET for the file; ``request`` are its headers, names in lower case."""
    if is_unchanged(
        file.etag,
        file.modified,
        if_none_match=request.get(b"if-none-match"),
        if_modified_since=request.get(b"if-modified-since"),
    ):
        return ReadResponse(status=NOT_MODIFIED, headers=file.validators[public])
    requested = request.get(b"range")
    if requested is not None and range_applies(file.etag, file.modified, request.get(b"if-range")):
        part = parse_range(requested, file.size_bytes)
        if part is not None:
            if not part:
                unsatisfiable = (b"content-range", f"bytes */{file.size_bytes}".encode())
                headers = [unsatisfiable, (b"content-length", b"0"), *file.validators[public]]
                return ReadResponse(status=RANGE_NOT_SATISFIABLE, headers=headers)
            headers = [
                (b"content-type", file.content_type),
                (b"content-length", str(len(part)).encode()),
                (b"content-range", f"bytes {part.start}-{part.stop - 1}/{file.size_bytes}".encode()),
                *file.validators[public],
            ]
            return ReadResponse(status=PARTIAL_CONTENT, headers=headers, part=part)
    return ReadResponse(status=OK, headers=file.whole_headers[public], part=range(file.size_bytes))
