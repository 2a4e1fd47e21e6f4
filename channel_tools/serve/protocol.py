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
    """Sends a part of an open file as the body of a response; ``prepare`` goes before its headers are sent."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def prepare(self) -> None:
        """Have the headers written at once, since the file goes past the transport's buffer."""
        self._cycle.transport.set_write_buffer_limits(0)

    async def __call__(self, descriptor: int, start: int, end: int) -> None:
        """Send bytes ``start`` to ``end``. Raises ConnectionError when they could not be; the connection is closed."""
        cycle = self._cycle
        transport = cycle.transport
        try:
            await self._flush()
            own = os.dup(transport.get_extra_info("socket").fileno())
            try:
                await _Pump(cycle, own, descriptor, start, end).run()
            finally:
                os.close(own)
        except OSError as err:
            transport.abort()
            raise ConnectionError(str(err)) from err
        finally:
            if not transport.is_closing():
                transport.set_write_buffer_limits()
        cycle.expected_content_length -= end - start

    async def _flush(self) -> None:
        """Wait until nothing is left in the transport's buffer; the sweep sees to clients that take nothing."""
        transport = self._cycle.transport
        while transport.get_write_buffer_size() and not transport.is_closing():
            await asyncio.sleep(0)
            await self._cycle.flow.drain()
        if transport.is_closing():
            raise ConnectionError("the client has gone")


class _Pump:
    """The kernel copies from the file to the socket whenever the socket takes more; no task is woken in between."""

    __slots__ = ("_asked", "_cycle", "_done", "_end", "_file", "_loop", "_position", "_seen", "_socket", "_timer")

    def __init__(self, cycle: RequestResponseCycle, socket: int, file: int, start: int, end: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._cycle = cycle
        self._socket = socket
        self._file = file
        self._position = self._asked = self._seen = start
        self._end = end
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Raises OSError when it cannot come to the end, TimeoutError when the client takes nothing for STALL_S."""
        self._advance()
        if not self._done.done():
            self._loop.add_writer(self._socket, self._advance)
            self._timer = self._loop.call_later(STALL_S, self._look)
        try:
            await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._loop.remove_writer(self._socket)

    def _advance(self) -> None:
        if self._done.done():
            return
        try:
            if self._position >= self._asked:  # once per window: the kernel walks all of its pages
                window = min(_READ_AHEAD_BYTES, self._end - self._asked)
                os.posix_fadvise(self._file, self._asked, window, os.POSIX_FADV_WILLNEED)
                self._asked += _READ_AHEAD_BYTES
            at_once = min(_SEND_AT_ONCE_BYTES, self._end - self._position)
            sent = os.sendfile(self._socket, self._file, self._position, at_once)
        except BlockingIOError:
            return
        except OSError as err:
            self._done.set_exception(err)
            return
        self._position += sent
        if self._position == self._end:
            self._done.set_result(None)
        elif sent == 0:
            self._done.set_exception(ConnectionError("the file became shorter while it was sent"))
        elif self._cycle.disconnected or self._cycle.transport.is_closing():
            self._done.set_exception(ConnectionError("the client has gone"))

    def _look(self) -> None:
        """See whether anything went since the last look."""
        if self._position == self._seen and not self._done.done():
            self._done.set_exception(TimeoutError("the client takes nothing"))
            return
        self._seen = self._position
        self._timer = self._loop.call_later(STALL_S, self._look)


async def _too_large(_scope: Scope, _receive: Receive, send: Send) -> None:
    """The answer to headers that came in one piece and are too long."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 431, "headers": headers})
    await send({"type": "http.response.body", "body": b""})
