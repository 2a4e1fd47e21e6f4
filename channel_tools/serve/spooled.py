# SPDX-License-Identifier: BSD-3-Clause
"""A large response that waits for its client on the disk, in a file without a name, and not in memory."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from starlette.responses import Response

from channel_tools.serve.connection import connection_of

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

IN_MEMORY_LIMIT_BYTES = 64 << 10


class ResponseCutError(Exception):
    """The client left before it had the whole response.

    Not an OSError: for these there is a response, which cannot be given once another one has begun.
    """


class SpooledResponse(Response):
    """As Response, whose body the kernel sends from the file."""

    def __init__(self, content: bytes, status_code: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(b"", status_code, {**headers, "content-length": str(len(content))}, media_type)
        self._size = len(content)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was sent
        self._file.write(content)
        self._file.flush()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send it. Raises ResponseCutError, with the connection closed, when the client has left."""
        with self._file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                try:
                    await connection_of(scope).send_file(send, self._file.fileno(), 0, self._size)
                except ConnectionError as err:
                    raise ResponseCutError(str(err)) from err
            await send({"type": "http.response.body", "body": b""})
