# SPDX-License-Identifier: BSD-3-Clause
"""The JSON that requests bring, of which a process has so much in memory at once that no client can fill it.

Decoded, a document takes many times its bytes, so that one large document is worked on at a time, and few small ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

from channel_tools.publish.server.protocol import decode
from channel_tools.serve.access.guard import RejectedError, busy_response
from channel_tools.serve.uploads.receive import ClientGoneError
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from channel_tools.serve.uploads.checks import Limits

_SMALL_BYTES = 128 << 10
_SMALL_AT_ONCE = 8
_MEMORY_BYTES = 32 << 20
"""Of all documents that are being received, or wait to be worked on."""

_Message = TypeVar("_Message")


class Documents:
    """Those of one process."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held_bytes = 0
        self._small = asyncio.Semaphore(_SMALL_AT_ONCE)
        self._large = asyncio.Semaphore(1)

    @contextlib.asynccontextmanager
    async def read(self, request: Request, kind: type[_Message]) -> AsyncIterator[_Message]:
        """The body of a request as a message of this kind, for as long as the block works on it.

        Raises UsageError for another message and for one without end, RejectedError when too many come at once.
        """
        body = bytearray()
        try:
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError("the client closed the connection")
                piece = message.get("body", b"")
                more = message.get("more_body", False)
                body += piece
                self._held_bytes += len(piece)
                if len(body) > self._limits.document_bytes:
                    raise UsageError(f"the request has more than {self._limits.document_bytes} bytes")
                if self._held_bytes > _MEMORY_BYTES:
                    raise RejectedError(busy_response())
            async with self._large if len(body) > _SMALL_BYTES else self._small:
                yield _decoded(bytes(body), kind)
        finally:
            self._held_bytes -= len(body)

    @contextlib.asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """For the block, which makes a large response, none of the large documents is worked on."""
        async with self._large:
            yield


def _decoded(body: bytes, kind: type[_Message]) -> _Message:
    try:
        return decode(body, kind)
    except ValueError as err:
        raise UsageError(f"the request is not understood: {err}") from None
