# SPDX-License-Identifier: BSD-3-Clause
"""Bodies that come and go: a piece at a time, with limits on how slow the client may be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from starlette.types import Message, Scope

from channel_tools.serve.transfer import (
    PIECE_BYTES,
    CutResponseError,
    RequestBody,
    SlowClientError,
    bounded,
    send_part,
)

CONTENT = bytes(range(256)) * 1024
SCOPE: Scope = {"type": "http", "method": "GET", "asgi": {"version": "3.0", "spec_version": "2.3"}}


def body(*pieces: bytes, ends: bool = True) -> Callable[[], Awaitable[Message]]:
    """A request's ``receive``; one that does not end waits after its last piece."""
    left = list(pieces)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        piece = left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(left) or not ends}

    return receive


async def received(receive: Callable[[], Awaitable[Message]]) -> bytes:
    found, more = b"", True
    while more:
        message = await receive()
        found, more = found + message["body"], message["more_body"]
    return found


def test_a_body_that_comes_in_time_is_received() -> None:
    assert asyncio.run(received(bounded(body(b"a", b"b")))) == b"ab"


def test_a_client_that_sends_nothing_is_given_up() -> None:
    with pytest.raises(SlowClientError, match=r"nothing arrived for 0\.05 s"):
        asyncio.run(received(bounded(body(b"a", ends=False), idle_s=0.05)))


def test_a_client_that_drips_is_given_up() -> None:
    """However regularly it sends; the last piece may come late."""

    async def dripping() -> Message:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"a", "more_body": True}

    with pytest.raises(SlowClientError, match="less than 10000 bytes a second arrived"):
        asyncio.run(received(bounded(dripping, idle_s=0.1, slowest_bytes=10_000)))


def test_the_rest_of_a_refused_body_is_read_to_its_end_or_for_a_while() -> None:
    async def dropped(*pieces: bytes) -> int:
        left = list(pieces)
        request = RequestBody(body(*pieces))
        left.pop(0)
        await request.receive()
        await request.drop_rest()
        await request.drop_rest()  # it is known to have ended
        return len(left)

    assert asyncio.run(dropped(b"a", b"b", b"c")) == 2

    async def endless() -> Message:
        return {"type": "http.request", "body": bytes(1 << 20), "more_body": True}

    asyncio.run(RequestBody(endless).drop_rest())


class Client:
    """Takes what is sent, piece by piece, unless it ``takes`` less; leaves when it has that much."""

    def __init__(self, takes: int | None = None) -> None:
        self.pieces: list[bytes] = []
        self._takes = takes
        self._left = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            self.pieces.append(message["body"])
            if self._takes is not None and len(self.pieces) >= self._takes:
                self._left.set()

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDWR)
    yield opened
    os.close(opened)


def sent(client: Client, descriptor: int, part: range, **options: float) -> None:
    asyncio.run(
        send_part(
            SCOPE, client.receive, client.send, status=200, headers=[], descriptor=descriptor, part=part, **options
        )
    )


@pytest.mark.parametrize("part", [range(len(CONTENT)), range(1), range(1000, 3 * PIECE_BYTES + 5)])
def test_a_part_of_a_file_is_sent_piece_by_piece(descriptor: int, part: range) -> None:
    client = Client()
    sent(client, descriptor, part)
    assert b"".join(client.pieces) == CONTENT[part.start : part.stop]
    assert max(map(len, client.pieces)) <= PIECE_BYTES


def test_a_client_that_leaves_is_sent_no_more(descriptor: int) -> None:
    client = Client(takes=1)
    with pytest.raises(CutResponseError, match="the client closed the connection"):
        sent(client, descriptor, range(len(CONTENT)))
    assert len(client.pieces) < len(CONTENT) / PIECE_BYTES


def test_a_client_that_takes_nothing_is_given_up(descriptor: int) -> None:
    class Stuck(Client):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if self.pieces:
                await asyncio.Event().wait()

    with pytest.raises(CutResponseError, match=r"the client took nothing for 0\.05 s"):
        sent(Stuck(), descriptor, range(len(CONTENT)), idle_s=0.05)


def test_a_file_that_becomes_shorter_is_noticed(descriptor: int) -> None:
    os.truncate(descriptor, 100)
    with pytest.raises(CutResponseError, match="the file became shorter while it was sent"):
        sent(Client(), descriptor, range(len(CONTENT)))
