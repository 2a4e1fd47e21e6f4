# SPDX-License-Identifier: BSD-3-Clause
"""A connection to the server: uvicorn's protocol behind limits, and files sent by the kernel.

uvicorn limits neither the size of headers and trailers nor how many requests come at once nor the time they take, and
ASGI cannot hand over an open file. So ``Connection`` stands between the transport and uvicorn's protocol: it reads a
bounded piece, passes on what belongs to the present request (``framing``), keeps the rest, and reads on only when that
is passed on as well. A request is passed on when the response to the one before is complete and taken; a body, when
the application asks for it. uvicorn gets a transport of ours, so that its wish to pause reading is one of several, and
puts the connection into the ``state`` of every request, from which the application takes it to send files. Nothing of
uvicorn is overridden.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Self

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from channel_tools.serve.admission import network_of
from channel_tools.serve.framing import HEADER_LIMIT_BYTES, Framing, FramingError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from channel_tools.serve.admission import Admission

STALL_S = 60.0
"""A connection over which nothing moves for this long is closed."""
SLOWEST_BYTES = 1024
"""Per second, of the body of a request on average."""
HEADER_TIME_S = 20.0
_SWEEP_S = 2.0
_STATE_KEY = "channel_tools.connection"
_SEND_AT_ONCE_BYTES = 4 << 20
_READ_AHEAD_BYTES = 8 << 20
_BODY_READ_BYTES = 64 << 10
_BUFFER = memoryview(bytearray(_BODY_READ_BYTES))
"""What is read comes here first, for all connections of a process: it is copied before anything else is read."""
_HEADERS_BUFFER = _BUFFER[:HEADER_LIMIT_BYTES]


class _Transport(asyncio.Transport):
    """The transport as uvicorn's protocol gets it: whether anything is read is the connection's to decide."""

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
        """uvicorn has enough of the present body."""
        self._connection.want_body(wanted=False)

    def resume_reading(self) -> None:
        """uvicorn has room for more of the present body."""
        self._connection.want_body(wanted=True)


class Connection(asyncio.BufferedProtocol):
    """One connection; all but ``admission`` is uvicorn's to give. The application has to be wrapped by ``limited``."""

    def __init__(self, *, admission: Admission, app_state: dict[str, Any], **given: Any) -> None:  # noqa: ANN401 - passed on to uvicorn's
        self._state: dict[str, Any] = {**app_state, _STATE_KEY: self}
        self._uvicorn = HttpToolsProtocol(app_state=self._state, **given)
        self._admission = admission
        self._framing = Framing()
        self.address = self.network = ""
        """Of the client, or of the proxy before us; and what counts as one address."""
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._rest = b""
        """What was read and is not yet passed on."""
        self._reading = True
        self._asked = self._waits = self._unread = self._uvicorn_has_room = False
        """Of the present body: whether the application has asked for it, waits for more now, and has not got yet what
        came; whether uvicorn has room for more."""
        self._requests = self._responses = 0
        """Requests whose headers have come, and those to which the response is complete."""
        self._at_end = False
        """The client has closed its side and waits for responses."""
        self._begun_s = self._heard_s = self._paused_s = 0.0
        """When the present headers, or the wait for the first ones, began; when bytes came last, or could again; when
        reading was paused last."""
        self._unsent: tuple[int, float] = (0, 0.0)
        """How many bytes wait to be taken by the client, and since when it is that many."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request, if there is room for another connection."""
        self.transport = transport
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
        """Wake who waits for the client to take more."""
        if self._timer is None:
            return  # it was not admitted
        self._timer.cancel()
        self._admission.lost(self)
        self._writable.set()
        self._uvicorn.connection_lost(exc)
        self._state.clear()  # it refers to this object

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._writable.clear()
        self._uvicorn.pause_writing()

    def resume_writing(self) -> None:
        """The transport's buffer has room again."""
        self._writable.set()
        self._uvicorn.resume_writing()
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview[Any]:  # noqa: ARG002 - asyncio's own signature
        """Where to read to: never so much that many connections could fill the memory by it."""
        if self._framing.in_headers:
            return _HEADERS_BUFFER
        return _BUFFER[: self._framing.remaining] if self._framing.remaining else _HEADERS_BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what came, as far as it can be taken now."""
        self._heard_s = self.loop.time()
        read = bytes(_BUFFER[:nbytes])
        self._rest = self._rest + read if self._rest else read
        self._go_on()

    def _go_on(self) -> None:
        """Pass on what can be; then read more only if nothing is left."""
        rest, position = self._rest, 0
        try:
            while position < len(rest) and self._may_pass_on() and not self.transport.is_closing():
                size = self._pass_on(rest, position)
                position += size
        except FramingError as err:
            self._reject(err.status)
            position = len(rest)
        self._rest = rest[position:]
        self._set_reading()
        if self._at_end and not self._rest and self._responses == self._requests:
            self.transport.close()

    def _pass_on(self, data: bytes, start: int) -> int:
        framing = self._framing
        was_in_headers = framing.in_headers
        if was_in_headers and not framing.header_bytes:
            self._begun_s = self.loop.time()
        size = framing.advance(data, start)
        if was_in_headers and (not framing.in_headers or not framing.header_bytes):
            self._requests += 1
            self._asked, self._waits, self._unread, self._uvicorn_has_room = False, False, False, True
            self._admission.busy(self)
        else:
            self._waits, self._unread = False, True
        self._uvicorn.data_received(data if size == len(data) else data[start : start + size])
        return size

    def _may_pass_on(self) -> bool:
        if self._responses == self._requests:  # it is a request, or the rest of one that has its response already
            return self._writable.is_set() or not self._framing.in_headers
        return not self._framing.in_headers and self._asked and self._uvicorn_has_room

    def _set_reading(self) -> None:
        """Read while nothing is kept that was read, and nobody waits for another."""
        wanted = not self._rest and (self._framing.in_headers or self._may_pass_on())
        if wanted == self._reading or self.transport.is_closing():
            return
        self._reading = wanted
        if not wanted:
            self._paused_s = self.loop.time()
            self.transport.pause_reading()
            return
        waited_s = self.loop.time() - self._paused_s
        self._begun_s, self._heard_s = self._begun_s + waited_s, self._heard_s + waited_s  # not the client's fault
        self.transport.resume_reading()

    def ask_for_body(self) -> None:
        """The application waits for the body of the present request, or for more of it."""
        self._waits = not self._unread
        if not self._asked:
            self._asked = True
            self._go_on()
        if self._at_end and self._waits and not self._framing.in_headers:  # there will be no more
            self.transport.close()

    def body_taken(self) -> None:
        """The application has got all of the present body that was passed on so far."""
        self._waits = self._unread = False

    def want_body(self, *, wanted: bool) -> None:
        """Whether uvicorn has room for more of the present body."""
        if wanted != self._uvicorn_has_room:
            self._uvicorn_has_room = wanted
            if wanted:
                self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more; complete requests still get their responses."""
        waits_in_vain = self._waits and not self._framing.in_headers
        self._at_end = bool(self._rest) or (self._responses < self._requests and not waits_in_vain)
        return self._at_end

    def response_complete(self) -> None:
        """Go on with the next request, if one can come."""
        self._responses += 1
        self._admission.idle(self)
        self._go_on()

    def drop(self) -> None:
        """End an idle connection, to make room for another."""
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
        """Of the first request, or of one that has begun; between requests uvicorn's keep-alive time holds."""
        return self._framing.in_headers and (self._framing.header_bytes > 0 or not self._requests)

    def _body_is_late(self, now_s: float) -> bool:
        """Nothing of it came for too long, or next to nothing all the time; unless we are the ones who do not read."""
        if not self._reading:
            return False
        seconds = now_s - self._begun_s
        return now_s - self._heard_s > STALL_S or (
            seconds > STALL_S and self._framing.body_bytes < seconds * SLOWEST_BYTES
        )

    def _reject(self, status: bytes) -> None:
        """Close the connection; with a response, unless one to an earlier request has not ended."""
        if self._responses == self._requests:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()

    async def send_file(self, send: Send, descriptor: int, start: int, end: int) -> None:
        """Send bytes ``start`` to ``end`` of an open file as a part of the body of the present response.

        Raises ConnectionError when they could not be sent; the connection is closed then.
        """
        try:
            await self._flush()
            own = os.dup(self.transport.get_extra_info("socket").fileno())
            try:
                await _Pump(self.transport, own, descriptor, start, end).run()
            finally:
                os.close(own)
        except OSError as err:
            self.transport.abort()
            raise ConnectionError(str(err)) from err
        finally:
            if not self.transport.is_closing():
                self.transport.set_write_buffer_limits()
        await send({"type": "http.response.body", "body": _SentBytes(end - start), "more_body": True})

    async def _flush(self) -> None:
        """Wait until nothing is left in the transport's buffer; the sweep sees to clients that take nothing."""
        self.transport.set_write_buffer_limits(0)
        while self.transport.get_write_buffer_size() and not self.transport.is_closing():
            await asyncio.sleep(0)
            await self._writable.wait()
        if self.transport.is_closing():
            raise ConnectionError("the client closed the connection")


class _SentBytes(bytes):
    """So many bytes of a body that have been sent already: nothing is left to write, but uvicorn counts them."""

    _size: int

    def __new__(cls, size: int) -> Self:
        """``size`` is the length that it reports."""
        made = super().__new__(cls)
        made._size = size
        return made

    def __len__(self) -> int:
        return self._size


def connection_of(scope: Scope) -> Connection:
    """The connection that a request came over."""
    connection: Connection = scope["state"][_STATE_KEY]
    return connection


def limited(app: ASGIApp) -> ASGIApp:
    """The application as Connection needs it: it says when it asks for a body, and when a response is complete."""

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


class _Pump:
    """The kernel copies from the file to the socket whenever the socket takes more; no task is woken in between."""

    __slots__ = ("_advised", "_done", "_end", "_file", "_loop", "_position", "_seen", "_socket", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, socket: int, file: int, start: int, end: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._transport = transport
        self._socket = socket
        self._file = file
        self._position = self._advised = self._seen = start
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
            if self._position >= self._advised:  # once per window: the kernel walks all of its pages
                window = min(_READ_AHEAD_BYTES, self._end - self._advised)
                os.posix_fadvise(self._file, self._advised, window, os.POSIX_FADV_WILLNEED)
                self._advised += _READ_AHEAD_BYTES
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
        elif self._transport.is_closing():
            self._done.set_exception(ConnectionError("the client closed the connection"))

    def _look(self) -> None:
        """See whether anything went since the last look."""
        if self._position == self._seen and not self._done.done():
            self._done.set_exception(TimeoutError(f"the client took nothing for {STALL_S:.0f} s"))
            return
        self._seen = self._position
        self._timer = self._loop.call_later(STALL_S, self._look)
