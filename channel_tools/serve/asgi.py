# SPDX-License-Identifier: BSD-3-Clause
"""The words of ASGI, and short answers that have no file behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SEND_FILE = "channel_tools.send_file"
"""The name of an extension in a scope; its value sends a part of an open file, see protocol.FileSender."""

_REALM = b'realm="channel_tools"'
CHALLENGE = [(b"www-authenticate", b"Bearer " + _REALM), (b"www-authenticate", b"Basic " + _REALM)]


async def send_text(
    send: Send, status: int, text: str, *, head: bool, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    """A short plain answer that nobody keeps."""
    body = text.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *(more or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body})
