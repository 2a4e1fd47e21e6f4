# SPDX-License-Identifier: BSD-3-Clause
"""Sends responses; of a big file, one piece for each client is in memory."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from starlette.responses import Response

from channel_tools.serve.connection import connection_of
from channel_tools.serve.files import open_unchanged

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from channel_tools.serve.connection import Connection
    from channel_tools.serve.files import CachedFile
    from channel_tools.serve.responses import ReadResponse

_PIECE_BYTES = 48 << 10
"""How much of a big file is read for one client at a time."""


async def send_response(
    send: Send, response: ReadResponse, file: CachedFile, connection: Connection, *, head: bool
) -> None:
    """Send status, headers and, unless ``head``, the body.

    Raises FileReplacedError or WithoutMeansError before anything was sent, ConnectionError if the body could not be
    sent completely.
    """
    start = {"type": "http.response.start", "status": response.status, "headers": response.headers}
    if not head and file.content is None and any(isinstance(part, range) for part in response.body):
        await _send_from_disk(send, start, response, file, connection)
        return
    await send(start)
    body = b"" if head else _body_in_memory(response, file.content or b"")
    await send({"type": "http.response.body", "body": body})


def _body_in_memory(response: ReadResponse, content: bytes) -> bytes:
    """The body from ``content``; a single part is not copied."""
    parts = [part if isinstance(part, bytes) else content[part.start : part.stop] for part in response.body]
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send_from_disk(
    send: Send, start: Message, response: ReadResponse, file: CachedFile, connection: Connection
) -> None:
    descriptor = open_unchanged(file)
    try:
        await send(start)
        for part in response.body:
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                await _send_part(send, descriptor, part, connection)
        await send({"type": "http.response.body", "body": b""})
    finally:
        os.close(descriptor)


async def _send_part(send: Send, descriptor: int, part: range, connection: Connection) -> None:
    """Send bytes of an open file as a part of a body, a piece when the client has taken the one before.

    Raises ConnectionError, with the connection closed, if they could not be sent.
    """
    for start in part[::_PIECE_BYTES]:
        await connection.wait_for_room()  # before it is read: a client that takes nothing has one piece in memory
        if connection.has_ended():
            raise ConnectionError("the client closed the connection")
        try:
            body = _read_exactly(descriptor, start, min(_PIECE_BYTES, part.stop - start))
        except OSError as err:
            connection.abort()
            raise ConnectionError(str(err)) from err
        message = {"type": "http.response.body", "body": body, "more_body": True}
        del body  # uvicorn has a copy of it while it waits
        await send(message)
        del message


def _read_exactly(descriptor: int, start: int, size: int) -> bytes:
    """Bytes of an open file. Raises OSError if they cannot be read or there are fewer."""
    piece = os.pread(descriptor, size, start)
    if len(piece) < size:
        raise OSError("the file became shorter while it was sent")
    return piece


class ResponseCutError(Exception):
    """The client left before it had the whole response.

    Not an OSError, because OSErrors get a response, which cannot be sent once another one has started.
    """


class SpooledResponse(Response):
    """A Response whose body is kept in a file, of which one piece is in memory."""

    def __init__(self, content: bytes, status_code: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(b"", status_code, {**headers, "content-length": str(len(content))}, media_type)
        self._size = len(content)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed after sending
        self._file.write(content)
        self._file.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send it. Raises ResponseCutError, with the connection closed, if the client has left."""
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                try:
                    await _send_part(send, self._file.fileno(), range(self._size), connection_of(scope))
                except ConnectionError as err:
                    raise ResponseCutError(str(err)) from err
            await send({"type": "http.response.body", "body": b""})
