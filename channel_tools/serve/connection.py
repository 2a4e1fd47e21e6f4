# SPDX-License-Identifier: BSD-3-Clause
"""A connection to the server: uvicorn's protocol with limits in front of it.

uvicorn limits neither the size of headers and trailers nor how many requests come at once nor the time they take. So
``Connection`` sits between the transport and uvicorn's protocol: it reads a bounded piece, passes on what belongs to
the present request (``framing``), keeps the rest, and reads on only when that is passed on as well. A request is passed
on when the response to the one before is complete and taken; a body, when the application asks for it. uvicorn gets a
transport of ours, so that its wish to pause reading is one of several, and puts the connection into the ``state`` of
every request. Both sides are asyncio's own interfaces of protocols and transports; nothing of uvicorn is overridden.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from channel_tools.serve.admission import network_of
from channel_tools.serve.framing import HEADER_LIMIT_BYTES, Framing, FramingError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from channel_tools.serve.admission import Admission

STALL_S = 60.0
"""A connection over which nothing moves for this long is closed."""
SLOWEST_BYTES = 1024
"""The lowest accepted average rate of a request's body, in bytes per second."""
HEADER_TIME_S = 20.0
_SWEEP_S = 2.0
_STATE_KEY = "channel_tools.connection"
_BODY_READ_BYTES = 64 << 10
_BUFFER = memoryview(bytearray(_BODY_READ_BYTES))
"""The read buffer shared by all connections of a process: its content is copied before anything else is read."""
_HEADERS_BUFFER = _BUFFER[:HEADER_LIMIT_BYTES]


class _Transport(asyncio.Transport):
    """The transport that uvicorn's protocol gets: the connection decides whether to read."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        super().__init__()
        self._transport = transport
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - asyncio's own signature
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._transport.write(data)

    def pause_reading(self) -> None:
        """Note that uvicorn has enough of the present body for now."""
        self._connection.want_body(wanted=False)

    def resume_reading(self) -> None:
        """Note that uvicorn has room for more of the present body."""
        self._connection.want_body(wanted=True)


class Connection(asyncio.BufferedProtocol):
    """One connection; uvicorn passes all but ``admission``. The application must be wrapped with ``limited``."""

    def __init__(self, *, admission: Admission, app_state: dict[str, Any], **arguments: Any) -> None:  # noqa: ANN401 - passed on to uvicorn's
        self._state: dict[str, Any] = {**app_state, _STATE_KEY: self}
        self._uvicorn = HttpToolsProtocol(app_state=self._state, **arguments)
        self._admission = admission
        self._framing = Framing()
        self.address = self.network = ""
        """The address of the client, or of the proxy before us; and its network, which counts as one address."""
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._pending = b""
        """What was read and not yet passed on."""
        self._reading = True
        self._body_requested = self._waits = self._unread = self._uvicorn_has_room = False
        """About the present body: whether the application has asked for it, is waiting for more, and has not yet got
        what arrived; whether uvicorn has room for more."""
        self._requests = self._responses = 0
        """The number of requests whose headers have arrived, and of those whose response is complete."""
        self._at_end = False
        """Whether the client has closed its side and waits for responses."""
        self._begun_s = self._heard_s = self._paused_s = 0.0
        """When the present headers, or the wait for the first ones, started; when bytes last arrived, or could again;
        when reading was last paused."""
        self._unsent: tuple[int, float] = (0, 0.0)
        """How many bytes wait to be taken by the client, and since when that number has not changed."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request, if there is room for another connection."""
        self.transport = transport
        transport.set_write_buffer_limits(0)  # the next piece waits until all of this one is taken: one in memory
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.network = network_of(self.address)
        self._begun_s = self._heard_s = self.loop.time()
        if not self._admission.admit(self):
            self._reject(b"503 Service Unavailable")
            return
        self._timer = self.loop.call_later(_SWEEP_S, self._sweep_now)
        self._uvicorn.connection_made(_Transport(transport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake any task that waits for the client to take more."""
        if self._timer is None:
            return  # it was not admitted
        self._timer.cancel()
        self._admission.lost(self)
        self._writable.set()
        self._uvicorn.connection_lost(exc)
        self._state.clear()  # it refers to this object

    def pause_writing(self) -> None:
        """Note that the transport's buffer is full."""
        self._writable.clear()
        self._uvicorn.pause_writing()

    def resume_writing(self) -> None:
        """Note that the transport's buffer has room again."""
        self._writable.set()
        self._uvicorn.resume_writing()
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview[Any]:  # noqa: ARG002 - asyncio's own signature
        """The buffer to read into; bounded, so that many connections cannot fill the memory."""
        if self._framing.in_headers:
            return _HEADERS_BUFFER
        return _BUFFER[: self._framing.remaining] if self._framing.remaining else _HEADERS_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what arrived, as far as it can be taken now."""
        self._heard_s = self.loop.time()
        read = bytes(_BUFFER[:nbytes])
        self._pending = self._pending + read if self._pending else read
        self._go_on()

    def _go_on(self) -> None:
        """Pass on what can be passed on; then read more only if nothing is left."""
        pending, position = self._pending, 0
        try:
            while position < len(pending) and self._may_pass_on() and not self.transport.is_closing():
                size = self._pass_on(pending, position)
                position += size
        except FramingError as err:
            self._reject(err.status)
            position = len(pending)
        self._pending = pending[position:]
        self._set_reading()
        if self._at_end and not self._pending and self._responses == self._requests:
            self.transport.close()

    def _pass_on(self, data: bytes, start: int) -> int:
        framing = self._framing
        was_in_headers = framing.in_headers
        if was_in_headers and not framing.header_bytes:
            self._begun_s = self.loop.time()
        size = framing.advance(data, start)
        if was_in_headers and (not framing.in_headers or not framing.header_bytes):
            self._requests += 1
            self._body_requested, self._waits, self._unread, self._uvicorn_has_room = False, False, False, True
            self._admission.busy(self)
        else:
            self._waits, self._unread = False, True
        self._uvicorn.data_received(data if size == len(data) else data[start : start + size])
        return size

    def _may_pass_on(self) -> bool:
        if self._responses == self._requests:  # this is a new request, or the rest of one that already has its response
            return self._writable.is_set() or not self._framing.in_headers
        return not self._framing.in_headers and self._body_requested and self._uvicorn_has_room

    def _set_reading(self) -> None:
        """Read only while everything that was read has been passed on and more is wanted."""
        is_wanted = not self._pending and (self._framing.in_headers or self._may_pass_on())
        if is_wanted == self._reading or self.transport.is_closing():
            return
        self._reading = is_wanted
        if not is_wanted:
            self._paused_s = self.loop.time()
            self.transport.pause_reading()
            return
        waited_s = self.loop.time() - self._paused_s
        self._begun_s, self._heard_s = self._begun_s + waited_s, self._heard_s + waited_s  # not the client's fault
        self.transport.resume_reading()

    def ask_for_body(self) -> None:
        """Note that the application waits for the body of the present request, or for more of it."""
        self._waits = not self._unread
        if not self._body_requested:
            self._body_requested = True
            self._go_on()
        if self._at_end and self._waits and not self._framing.in_headers:  # no more will arrive
            self.transport.close()

    def body_taken(self) -> None:
        """Note that the application has got all of the present body that was passed on so far."""
        self._waits = self._unread = False

    def want_body(self, *, wanted: bool) -> None:
        """Set whether uvicorn has room for more of the present body."""
        if wanted != self._uvicorn_has_room:
            self._uvicorn_has_room = wanted
            if wanted:
                self._go_on()

    def eof_received(self) -> bool:
        """Note that the client sends no more; complete requests still get their responses."""
        waits_in_vain = self._waits and not self._framing.in_headers
        self._at_end = bool(self._pending) or (self._responses < self._requests and not waits_in_vain)
        return self._at_end

    def response_complete(self) -> None:
        """Continue with the next request, if one can follow."""
        self._responses += 1
        self._admission.idle(self)
        self._go_on()

    def drop(self) -> None:
        """Close an idle connection, to make room for another."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
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
            self._reject(b"408 Request Timeout")
        elif not self._framing.in_headers and self._body_is_late(now_s):
            self.transport.abort()

    def _sweep_now(self) -> None:
        self._timer = self.loop.call_later(_SWEEP_S, self._sweep_now)
        self.sweep(self.loop.time())

    def _awaits_headers(self) -> bool:
        """Whether headers are due, of the first request or of a started one; else uvicorn's keep-alive time applies."""
        return self._framing.in_headers and (self._framing.header_bytes > 0 or not self._requests)

    def _body_is_late(self, now_s: float) -> bool:
        """Whether the client sent none of the body for too long, or too little in all, while we were reading."""
        if not self._reading:
            return False
        seconds = now_s - self._begun_s
        return now_s - self._heard_s > STALL_S or (
            seconds > STALL_S and self._framing.body_bytes < seconds * SLOWEST_BYTES
        )

    def _reject(self, status: bytes) -> None:
        """Close the connection; with a response, unless the response to an earlier request is unfinished."""
        if self._responses == self._requests:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    async def wait_for_room(self) -> None:
        """Wait until the client has taken what was sent, but for what the kernel keeps, or the connection has ended."""
        await self._writable.wait()

    def has_ended(self) -> bool:
        """Whether nothing that is sent will reach the client any more."""
        return self.transport.is_closing()

    def abort(self) -> None:
        """Close the connection at once, so that the client notices that it has not got everything."""
        self.transport.abort()


def connection_of(scope: Scope) -> Connection:
    """The connection that a request arrived on."""
    connection: Connection = scope["state"][_STATE_KEY]
    return connection


def limited(app: ASGIApp) -> ASGIApp:
    """Wrap the application so that Connection learns when it asks for a body and when a response is complete."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)

        async def receiving() -> Message:
            connection.ask_for_body()
            message = await receive()
            connection.body_taken()
            return message

        await app(scope, receiving, send)
        connection.response_complete()  # after an exception uvicorn responds, and closes the connection

    return respond
