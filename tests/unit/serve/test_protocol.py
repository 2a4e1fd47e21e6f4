# SPDX-License-Identifier: BSD-3-Clause
"""What a connection may keep the server waiting for: uvicorn's protocol with ours on top, time given by the test."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from channel_tools.serve.asgi import Receive, Scope, Send
from channel_tools.serve.protocol import HEADER_LIMIT_BYTES, HEADER_TIME_S, STALL_S, ServingProtocol, _Pump

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
UPLOAD = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


class Wire(asyncio.Transport):
    """The other end of a connection: takes everything unless it is told to stall."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self.sent = b""
        self.waiting = 0
        self.end = ""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return bool(self.end)

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def take(_scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await answer(_scope, receive, send)


async def never(_scope: Scope, _receive: Receive, _send: Send) -> None:
    await asyncio.Event().wait()


def talk(app: Application, story: Callable[[ServingProtocol, Wire, float], Awaitable[None]]) -> Wire:
    """Let a story happen on a new connection to the application; gives the wire afterwards."""

    async def run() -> Wire:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        config.load()
        protocol = ServingProtocol(config=config, server_state=server.server_state, app_state={})
        wire = Wire()
        protocol.connection_made(wire)
        await story(protocol, wire, asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        for task in server.server_state.tasks:
            task.cancel()
        protocol.connection_lost(None)
        return wire

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "line", "half"])
def test_headers_that_do_not_come_are_not_waited_for(sent: bytes) -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        if sent:
            protocol.data_received(sent)
        protocol.sweep(now_s + HEADER_TIME_S - 1)
        assert wire.end == ""
        protocol.sweep(now_s + HEADER_TIME_S + 1)

    wire = talk(answer, story)
    assert wire.end == "closed"
    assert wire.sent.startswith(b"HTTP/1.1 408")


def test_headers_that_trickle_get_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        for second in range(0, 30, 2):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                protocol.data_received(b"GET / HTTP/1.1\r\n" if second == 0 else b"X: y\r\n")
                protocol.sweep(now_s + second)

    assert talk(answer, story).end == "closed"


def test_a_kept_connection_may_be_idle() -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(REQUEST)
        await settle()
        protocol.sweep(now_s + HEADER_TIME_S + 1)
        assert wire.end == ""
        assert wire.sent.endswith(b"\r\n\r\nok")

    talk(answer, story)


@pytest.mark.parametrize("pieces", [1, 2000], ids=["at-once", "in-pieces"])
def test_headers_of_any_length_are_refused(pieces: int) -> None:
    headers = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"y" * HEADER_LIMIT_BYTES + b"\r\n\r\n"

    async def story(protocol: ServingProtocol, wire: Wire, _now_s: float) -> None:
        size = len(headers) // pieces + 1
        for start in range(0, len(headers), size):
            if not wire.end:
                protocol.data_received(headers[start : start + size])
        await settle()

    wire = talk(answer, story)
    assert wire.sent.startswith(b"HTTP/1.1 431")
    assert wire.end == "closed"


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(UPLOAD + b"x" * 100)
        await settle()
        protocol.sweep(now_s + STALL_S - 1)
        assert wire.end == ""
        protocol.sweep(now_s + STALL_S + 1)

    assert talk(take, story).end == "aborted"


def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(UPLOAD)
        for second in range(0, 600, 10):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                protocol.data_received(b"x")
                await settle()
                protocol.sweep(now_s + second)

    assert talk(take, story).end == "aborted"


def test_a_body_after_its_answer_is_not_taken_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(UPLOAD)
        await settle()
        assert wire.sent.endswith(b"ok")
        for second in range(0, 600, 10):
            monkeypatch.setattr(protocol.loop, "time", lambda later=now_s + second: later)
            if not wire.end:
                protocol.data_received(b"x")
                protocol.sweep(now_s + second)

    assert talk(answer, story).end == "aborted"


def test_an_answer_that_takes_long_is_not_the_clients_fault() -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(REQUEST)
        await settle()
        protocol.sweep(now_s + STALL_S * 10)
        assert wire.end == ""

    talk(never, story)


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    async def story(protocol: ServingProtocol, wire: Wire, now_s: float) -> None:
        protocol.data_received(REQUEST)
        await settle()
        wire.waiting = 5000
        protocol.sweep(now_s)
        wire.waiting = 4000
        protocol.sweep(now_s + STALL_S)
        protocol.sweep(now_s + STALL_S * 2 - 1)
        assert wire.end == ""
        wire.close()  # as uvicorn does after the last answer: what waits is not given up by that
        protocol.sweep(now_s + STALL_S * 2 + 1)

    assert talk(answer, story).end == "aborted"


class Cycle:
    """What sending a file asks of a request."""

    def __init__(self) -> None:
        self.disconnected = False
        self.transport = Wire()


def pump(tmp_path: Path, size: int, read: Callable[[socket.socket], Awaitable[int]]) -> int:
    """Send a file of ``size`` bytes to a reader; what the reader returns."""
    file = tmp_path / "file"
    file.write_bytes(bytes(size))

    async def run() -> int:
        ours, theirs = socket.socketpair()
        with ours, theirs, file.open("rb") as stream:
            ours.setblocking(False)  # noqa: FBT003 - the socket's own signature
            theirs.setblocking(False)  # noqa: FBT003
            cycle: Any = Cycle()
            reading = asyncio.ensure_future(read(theirs))
            await _Pump(cycle, ours.fileno(), stream.fileno(), 0, size).run()
            return await reading

    return asyncio.run(run())


async def read_all(connection: socket.socket) -> int:
    received = 0
    while received < 3_000_000:
        received += len(await asyncio.get_running_loop().sock_recv(connection, 1 << 16))
    return received


async def read_nothing(_connection: socket.socket) -> int:
    await asyncio.Event().wait()
    return 0


async def leave(connection: socket.socket) -> int:
    await asyncio.get_running_loop().sock_recv(connection, 1)
    connection.close()
    return 0


def test_a_file_is_sent_whole(tmp_path: Path) -> None:
    assert pump(tmp_path, 3_000_000, read_all) == 3_000_000


def test_a_reader_that_stalls_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.serve.protocol.STALL_S", 0.05)
    with pytest.raises(TimeoutError):
        pump(tmp_path, 3_000_000, read_nothing)


def test_a_reader_that_leaves_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        pump(tmp_path, 3_000_000, leave)


def test_a_file_that_became_shorter_is_noticed(tmp_path: Path) -> None:
    async def shorten(connection: socket.socket) -> int:
        os.truncate(tmp_path / "file", 10)
        return await read_all(connection)

    with pytest.raises(ConnectionError, match="became shorter"):
        pump(tmp_path, 3_000_000, shorten)
