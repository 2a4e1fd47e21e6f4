# SPDX-License-Identifier: BSD-3-Clause
"""Bodies that are read from a file: piece by piece, as the client takes them, and no defect where it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from channel_tools.serve.addresses import parse_path
from channel_tools.serve.application import make_routes
from channel_tools.serve.connection import STALL_S, Connection, connection_of
from channel_tools.serve.files import FileCache
from channel_tools.serve.responses import ReadResponse, respond_to_read
from channel_tools.serve.sending import ResponseCutError, SpooledResponse, send_response
from tests.unit.serve.wires import REQUEST, Wire, feed, settle, talk

CONTENT = bytes(range(256)) * 8192
"""Far more than one piece."""


class Sender:
    """An application that sends a file, and notes how that ended."""

    def __init__(self, root: Path) -> None:
        (root / "toys" / "linux-64").mkdir(parents=True)
        self.path = root / "toys" / "linux-64" / "toy-1.0-0.conda"
        self.path.write_bytes(CONTENT)
        self.ended: list[str] = []
        self._root = root

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        asked = parse_path("/toys/linux-64/toy-1.0-0.conda")
        assert asked is not None
        file = FileCache(self._root).find(asked)
        assert file is not None
        response: ReadResponse = respond_to_read(file, {}, public=True)
        try:
            await send_response(send, response, file, connection_of(scope), head=False)
        except ConnectionError as err:
            self.ended.append(str(err))
        else:
            self.ended.append("sent")


def test_a_file_is_sent_piece_by_piece_as_the_client_takes_it(tmp_path: Path) -> None:
    sender = Sender(tmp_path)

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        wire.takes = False
        feed(protocol, REQUEST)
        while not sender.ended:
            before = len(wire.sent)
            await settle()
            assert len(wire.sent) - before <= 200_000
            protocol.resume_writing()
            await settle()

    wire = talk(sender, story)
    assert wire.sent.partition(b"\r\n\r\n")[2] == CONTENT
    assert sender.ended == ["sent"]


def test_a_client_that_takes_nothing_is_given_up(tmp_path: Path) -> None:
    sender = Sender(tmp_path)

    async def story(protocol: Connection, wire: Wire, now_s: float) -> None:
        wire.takes = False
        feed(protocol, REQUEST)
        await settle()
        wire.waiting = 100_000
        protocol.sweep(now_s)
        protocol.sweep(now_s + STALL_S + 1)
        assert wire.end == "aborted"
        protocol.connection_lost(None)  # as asyncio says it
        await settle()

    assert len(talk(sender, story).sent) < len(CONTENT)
    assert sender.ended == ["the client closed the connection"]


def test_a_file_that_becomes_shorter_is_cut_off(tmp_path: Path) -> None:
    sender = Sender(tmp_path)

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        wire.takes = False
        feed(protocol, REQUEST)
        await settle()
        with sender.path.open("r+b") as stream:
            stream.truncate(200_000)
        while not sender.ended:
            protocol.resume_writing()
            await settle()

    assert talk(sender, story).end == "aborted"
    assert sender.ended == ["the file became shorter while it was sent"]


async def _large(_request: Request) -> SpooledResponse:
    return SpooledResponse(CONTENT, 200, {}, "application/json")


def test_a_client_that_leaves_gets_no_second_response(tmp_path: Path) -> None:
    """The routes have a response to what the system refuses, for which it is too late by then."""
    routes = make_routes(root=tmp_path, guard=None, metrics=None, uploads=[Route("/", _large)])  # type: ignore[arg-type]  # neither is asked
    ended: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ResponseCutError) as caught:
            await routes(scope, receive, send)
        ended.append(str(caught.value))

    async def story(protocol: Connection, wire: Wire, _now_s: float) -> None:
        wire.takes = False
        feed(protocol, REQUEST)
        await settle()
        wire.close()
        protocol.connection_lost(None)
        await settle()

    assert talk(app, story).sent.count(b"HTTP/1.1 ") == 1
    assert ended == ["the client closed the connection"]
