# SPDX-License-Identifier: BSD-3-Clause
"""Connections without a network: uvicorn's protocol behind ours, and a wire that the test holds in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from channel_tools.serve.admission import Admission
from channel_tools.serve.connection import Connection, limited

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """The other end of a connection: takes everything at once, unless the test says when."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 2)})
        self.sent = b""
        self.waiting = 0
        self.reading = True
        self.end = ""
        self.takes = True
        """Whether what is written is taken at once; else the protocol must wait until the test calls resume_writing."""
        self.protocol: Connection

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.sent += bytes(data)
        if not self.takes:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return bool(self.end)

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def is_reading(self) -> bool:
        return self.reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """It has no buffer."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def talk(app: Application, story: Callable[[Connection, Wire, float], Awaitable[None]]) -> Wire:
    """Let a story happen on a new connection to the application; gives the wire afterwards."""

    async def run() -> Wire:
        config = uvicorn.Config(limited(app), ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        config.load()
        protocol = Connection(
            admission=Admission(total=9, each=9), config=config, server_state=server.server_state, app_state={}
        )
        wire = Wire()
        wire.protocol = protocol
        protocol.connection_made(wire)
        await story(protocol, wire, asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        for task in server.server_state.tasks:
            task.cancel()
        protocol.connection_lost(None)
        return wire

    return asyncio.run(run())


def feed(protocol: Connection, data: bytes) -> int:
    """As a transport does: as much at a time as there is room for, and nothing while reading is paused; how much."""
    position = 0
    while position < len(data) and protocol.transport.is_reading() and not protocol.transport.is_closing():
        buffer = protocol.get_buffer(-1)
        piece = data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        protocol.buffer_updated(len(piece))
        position += len(piece)
    return position


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
