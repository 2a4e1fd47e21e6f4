# SPDX-License-Identifier: BSD-3-Clause
"""How bodies come and go: a piece at a time, so that no client fills the memory, and with limits on how slow it may be.

granian limits the size of headers and the time they take; how long a body takes is the application's matter.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Message, Receive, Scope, Send

IDLE_S = 60.0
"""A client that sends none of a body, or takes none of a response, for this long is given up."""
SLOWEST_BYTES = 1024
"""The lowest accepted average rate of a request's body, in bytes per second, once it has taken IDLE_S."""
PIECE_BYTES = 64 << 10
"""How much of a file is read for one client at a time."""


_DRAINED_BYTES = 8 << 20
_DRAIN_IDLE_S = 2.0
_DRAIN_S = 10.0


class SlowClientError(Exception):
    """The body of a request arrives too slowly."""


class CutResponseError(Exception):
    """The response was not sent completely, since the client left or took nothing, or the file cannot be read.

    Not an OSError, because OSErrors get a response, which cannot be sent once another one has started.
    """


def bounded(receive: Receive, *, idle_s: float = IDLE_S, slowest_bytes: float = SLOWEST_BYTES) -> Receive:
    """``receive`` for the body of a request, with limits: raises SlowClientError.

    Only the time counts in which the application waits for the client.
    """
    size, waited_s = 0, 0.0

    async def receiving() -> Message:
        nonlocal size, waited_s
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(idle_s):
                message = await receive()
        except TimeoutError:
            raise SlowClientError(f"nothing arrived for {idle_s:g} s") from None
        waited_s += time.monotonic() - begun_s
        size += len(message.get("body", b""))
        if waited_s > idle_s and size < waited_s * slowest_bytes and message.get("more_body", False):
            raise SlowClientError(f"less than {slowest_bytes:g} bytes a second arrived")
        return message

    return receiving


class RequestBody:
    """``receive`` of a request, which knows whether all of the body was received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_ended = False

    async def receive(self) -> Message:
        """The next message."""
        message = await self._receive()
        self._has_ended = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drop_rest(self) -> None:
        """Read on to the end, up to 8 MiB and ten seconds, before a request is refused: many clients read no answer
        before they have sent everything, and with unread bytes the connection is reset.
        """
        receiving, size = bounded(self.receive, idle_s=_DRAIN_IDLE_S), 0
        with contextlib.suppress(SlowClientError, TimeoutError):
            async with asyncio.timeout(_DRAIN_S):  # chunks of a byte each would keep a processor for minutes
                while not self._has_ended and size < _DRAINED_BYTES:
                    size += len((await receiving()).get("body", b""))


async def send_part(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    status: int,
    headers: list[tuple[bytes, bytes]],
    descriptor: int,
    part: range,
    idle_s: float = IDLE_S,
) -> None:
    """Send bytes of an open file as a response, the next piece when the server has room for it.

    Raises CutResponseError, after which the connection is closed, so that the client notices what it has not got.
    """
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for start in part[::PIECE_BYTES]:
            piece = os.pread(descriptor, min(PIECE_BYTES, part.stop - start), start)
            if len(piece) < min(PIECE_BYTES, part.stop - start):
                raise CutResponseError("the file became shorter while it was sent")
            yield piece
            sent += len(piece)
            await asyncio.sleep(0)  # granian's send does not wait when the client has left; this lets us hear of it

    async def sending(message: Message) -> None:
        async with asyncio.timeout(idle_s):
            await send(message)

    response = StreamingResponse(pieces(), status)
    response.raw_headers = headers
    try:
        await response(scope, receive, sending)
    except TimeoutError:
        raise CutResponseError(f"the client took nothing for {idle_s:g} s") from None
    except OSError as err:
        raise CutResponseError(str(err)) from err
    if sent < len(part):
        raise CutResponseError("the client closed the connection")
