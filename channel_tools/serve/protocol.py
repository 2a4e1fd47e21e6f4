# SPDX-License-Identifier: BSD-3-Clause
"""uvicorn's HTTP protocol with what a server of files needs besides: limits, and the kernel's own copying.

uvicorn sets no limit to headers nor to the time they take, and ASGI has no way to hand a file over: both are added here
to its protocol on httptools, by a subclass. A connection over which nothing moves for ``STALL_S`` is closed.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from channel_tools.serve.asgi import SEND_FILE

if TYPE_CHECKING:
    from channel_tools.serve.asgi import Receive, Scope, Send

STALL_S = 60.0
SLOWEST_BYTES = 1024
"""Per second, of the body of a request on average."""
HEADER_TIME_S = 20.0
HEADER_LIMIT_BYTES = 16 << 10
_SEND_AT_ONCE_BYTES = 4 << 20
_READ_AHEAD_BYTES = 8 << 20


class ServingProtocol(HttpToolsProtocol):
    """One connection."""

    _header_bytes = 0
    _body_bytes = 0
    _in_headers = True
    _at_end = False
    """The client has closed its side."""
    _begun_s = 0.0
    """When the headers under way, or the wait for the first ones, began."""
    _heard_s = 0.0
    """When bytes came last."""
    _unsent: tuple[int, float] = (0, 0.0)
    """How many bytes wait to be taken by the client, and since when it is that many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._begun_s = self._heard_s = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the headers under way have become too long."""
        self._heard_s = self.loop.time()
        if not self._in_headers:
            self._body_bytes += len(data)
        else:
            if not self._header_bytes:
                self._begun_s, self._body_bytes = self._heard_s, 0
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_LIMIT_BYTES and not self.transport.is_closing():
            self._refuse(b"431 Request Header Fields Too Large")

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._in_headers = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes are the headers of another request."""
        super().on_message_complete()
        self._in_headers, self._header_bytes = True, 0

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; what it asked for in full is still answered."""
        cycle: RequestResponseCycle | None = self.cycle
        self._at_end = cycle is not None and not cycle.more_body and not cycle.response_complete
        return self._at_end

    def on_response_complete(self) -> None:
        """Go on with the next request, if one can come."""
        super().on_response_complete()
        if self._at_end and self.cycle.response_complete:
            self.transport.close()

    def sweep(self, now_s: float) -> None:
        """Close the connection when its client keeps us waiting for too long; called every few seconds."""
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent[0]:
            self._unsent = (unsent, now_s)
        if unsent and now_s - self._unsent[1] > STALL_S:
            self.transport.abort()
        elif self.transport.is_closing():
            return
        elif self._awaits_headers() and now_s - self._begun_s > HEADER_TIME_S:
            self._refuse(b"408 Request Timeout")
        elif not self._in_headers and self._body_is_late(now_s):
            self.transport.abort()

    def _awaits_headers(self) -> bool:
        """Of the first request, or of one that has begun; between requests uvicorn's keep-alive time holds."""
        return self._in_headers and (self._header_bytes > 0 or self.cycle is None)

    def _body_is_late(self, now_s: float) -> bool:
        """Nothing of it came for too long, or next to nothing all the time; unless we are the ones who do not read."""
        if self.flow.read_paused:
            return False
        seconds = now_s - self._begun_s
        return now_s - self._heard_s > STALL_S or (seconds > STALL_S and self._body_bytes < seconds * SLOWEST_BYTES)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401 - a type of uvicorn's own
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment]
        scope["extensions"] = {SEND_FILE: FileSender(cycle)}
        headers = cycle.scope["headers"]
        size_bytes = len(cycle.scope["raw_path"]) + sum(len(name) + len(value) for name, value in headers)
        too_large: Any = _too_large
        super()._start_asgi_task(cycle, app if size_bytes <= HEADER_LIMIT_BYTES else too_large)

    def _refuse(self, status: bytes) -> None:
        """Close the connection; with an answer, unless one to an earlier request is under way."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()


class FileSender:
    """Sends a part of an open file as the body of a response whose headers were sent before."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    async def __call__(self, descriptor: int, start: int, end: int) -> None:
        """Send bytes ``start`` to ``end``. Raises ConnectionError when they could not be; the connection is closed."""
        cycle = self._cycle
        await self._flush()
        own = os.dup(cycle.transport.get_extra_info("socket").fileno())
        try:
            await self._send(own, descriptor, start, end)
        except (OSError, TimeoutError) as err:
            cycle.transport.abort()
            raise ConnectionError(str(err)) from err
        finally:
            os.close(own)
        cycle.expected_content_length -= end - start

    async def _flush(self) -> None:
        """Wait until the headers have left the transport's buffer, since the file goes past it."""
        transport = self._cycle.transport
        if transport.is_closing():
            raise ConnectionError("the client has gone")
        if not transport.get_write_buffer_size():
            return
        transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(STALL_S):
                while transport.get_write_buffer_size() and not transport.is_closing():
                    await asyncio.sleep(0)
                    await self._cycle.flow.drain()
        except TimeoutError as err:
            transport.abort()
            raise ConnectionError("the client takes nothing") from err
        finally:
            transport.set_write_buffer_limits()
        if transport.is_closing():
            raise ConnectionError("the client has gone")

    async def _send(self, own: int, descriptor: int, start: int, end: int) -> None:
        position = asked = start
        while position < end:
            if position >= asked:  # once per window: the kernel walks all of its pages
                os.posix_fadvise(descriptor, asked, min(_READ_AHEAD_BYTES, end - asked), os.POSIX_FADV_WILLNEED)
                asked += _READ_AHEAD_BYTES
            try:
                sent = os.sendfile(own, descriptor, position, min(_SEND_AT_ONCE_BYTES, end - position))
            except BlockingIOError:
                sent = -1
            if sent == 0:
                raise ConnectionError("the file became shorter while it was sent")
            if self._cycle.disconnected or self._cycle.transport.is_closing():
                raise ConnectionError("the client has gone")
            position += max(0, sent)
            if position < end:
                await _writable(own)


async def _too_large(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The answer to headers that came in one piece and are too long."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _writable(descriptor: int) -> None:
    """Wait until the socket takes more. Raises TimeoutError when it does not within STALL_S."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_writer(descriptor, _settle, ready)
    try:
        async with asyncio.timeout(STALL_S):
            await ready
    finally:
        loop.remove_writer(descriptor)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
