# SPDX-License-Identifier: BSD-3-Clause
"""The application of the server: reads are answered here, straight from the scope; all else by the routes behind.

Most requests ask whether an index changed, and a framework's routing would cost several times what answering does.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.serve.access import TooManyGuesses, credentials_of
from channel_tools.serve.addresses import RESERVED, masked, place_of, split_token
from channel_tools.serve.answers import answer_read
from channel_tools.serve.asgi import CHALLENGE, send_text
from channel_tools.serve.ranges import ByteRange
from channel_tools.serve.sending import FileGoneError, send_answer

if TYPE_CHECKING:
    from channel_tools.serve.access import Gatekeeper
    from channel_tools.serve.accesslog import AccessLog
    from channel_tools.serve.addresses import Place
    from channel_tools.serve.asgi import Application, Message, Receive, Scope, Send
    from channel_tools.serve.hotfiles import HotFiles
    from channel_tools.serve.metrics import Metrics

_UNAUTHORIZED = 401
_NOT_FOUND = 404
_TOO_MANY_REQUESTS = 429
_CLIENT_GONE = 499
"""As nginx: no answer reached the client, since it closed the connection."""
_ATTEMPTS = 3


@dataclass(slots=True)
class _Outcome:
    """What is known of an answer when it is done."""

    kind: str
    status: int = 0
    size_bytes: int = 0
    token: str | None = None


class ChannelServer:
    """The ASGI application: files of channels, and ``routes`` for all that is no file."""

    def __init__(
        self, *, gate: Gatekeeper, files: HotFiles, log: AccessLog, metrics: Metrics, routes: Application
    ) -> None:
        self._gate = gate
        self._files = files
        self._log = log
        self._metrics = metrics
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        started_s = time.perf_counter()
        method: str = scope["method"]
        token, path = split_token(scope["path"])
        outcome = _Outcome(kind="other")
        try:
            if method in {"GET", "HEAD"} and path[1:].partition("/")[0] not in RESERVED:
                await self._read(scope, send, path, token, outcome)
            else:
                await self._route(scope, receive, send, outcome)
        except ConnectionError:
            outcome.status = _CLIENT_GONE
            await asyncio.sleep(0)  # lets the protocol learn of it, which else would complain of an unfinished answer
        finally:
            self._note(scope, outcome, time.perf_counter() - started_s)

    def _note(self, scope: Scope, outcome: _Outcome, seconds: float) -> None:
        method, client = scope["method"], scope["client"]
        self._metrics.count(method, outcome.kind, outcome.status, size_bytes=outcome.size_bytes, seconds=seconds)
        self._log.add(
            client[0] if client else "",
            method,
            masked(scope["path"]),
            status=outcome.status,
            size_bytes=outcome.size_bytes,
            seconds=seconds,
            token=outcome.token,
        )

    async def _read(self, scope: Scope, send: Send, path: str, path_token: str | None, outcome: _Outcome) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        head = scope["method"] == "HEAD"
        place = place_of(path)
        if place is None:
            await _refuse(send, outcome, _NOT_FOUND, head=head)
            return
        public = self._gate.is_public(place.channel, place.label)
        if not public:
            credentials = credentials_of(path_token, headers.get(b"authorization"), headers.get(b"x-api-key"))
            try:
                record = self._gate.identify(credentials, _address(scope))
            except TooManyGuesses as err:
                await _refuse(send, outcome, _TOO_MANY_REQUESTS, head=head, wait_s=err.wait_s)
                return
            outcome.token = record.id if record else None
            if not self._gate.may(record, "read", place.channel, place.label):
                await _refuse(send, outcome, _UNAUTHORIZED, head=head)
                return
        await self._send_file(scope, send, place, headers, outcome, public=public)

    async def _send_file(
        self, scope: Scope, send: Send, place: Place, headers: dict[bytes, bytes], outcome: _Outcome, *, public: bool
    ) -> None:
        head = scope["method"] == "HEAD"
        if head:
            headers.pop(b"range", None)  # it has a meaning for GET only
        outcome.kind = "package" if place.never_changes else "index"
        for _attempt in range(_ATTEMPTS):
            file = self._files.find(place)
            if file is None:
                break
            answer = answer_read(file, headers, public=public)
            outcome.status = answer.status
            outcome.size_bytes = 0 if head else _size_of(answer.body)
            try:
                await send_answer(scope, send, answer, file, head=head)
            except FileGoneError:
                continue
            return
        await _refuse(send, outcome, _NOT_FOUND, head=head)

    async def _route(self, scope: Scope, receive: Receive, send: Send, outcome: _Outcome) -> None:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                outcome.status = message["status"]
            elif message["type"] == "http.response.body":
                outcome.size_bytes += len(message.get("body", b""))
            await send(message)

        await self._routes(scope, receive, noting)
        outcome.token = scope.get("channel_tools.token")


def _address(scope: Scope) -> str:
    client = scope["client"]
    return client[0] if client else ""


def _size_of(body: tuple[bytes | ByteRange, ...]) -> int:
    return sum(part.size_bytes if isinstance(part, ByteRange) else len(part) for part in body)


async def _refuse(send: Send, outcome: _Outcome, status: int, *, head: bool, wait_s: float = 0.0) -> None:
    outcome.status, outcome.size_bytes = status, 0
    if status == _UNAUTHORIZED:
        await send_text(send, status, "a valid token for this channel and label is needed", head=head, more=CHALLENGE)
    elif status == _TOO_MANY_REQUESTS:
        retry = [(b"retry-after", str(int(wait_s) + 1).encode())]
        await send_text(send, status, "too many wrong tokens came from this address", head=head, more=retry)
    else:
        await send_text(send, status, "there is no such file", head=head)
