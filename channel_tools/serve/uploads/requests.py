# SPDX-License-Identifier: BSD-3-Clause
"""What the routes that publish read from a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from channel_tools.errors import UsageError
from channel_tools.publish.wire import decode
from channel_tools.serve.addresses import CHANNEL_NAME, RESERVED
from channel_tools.serve.uploads.receive import ClientGoneError

if TYPE_CHECKING:
    from starlette.requests import Request

    from channel_tools.serve.uploads.checks import Limits

_Message = TypeVar("_Message")


def channel_of(request: Request) -> str:
    """The channel that the address names. Raises UsageError for what cannot be a channel's name."""
    channel = str(request.path_params["channel"])
    if not CHANNEL_NAME.fullmatch(channel) or channel in RESERVED:
        raise UsageError(f"{channel!r} cannot be a channel's name", hint="letters, digits, '.', '_' and '-' can")
    return channel


async def read_document(request: Request, kind: type[_Message], limits: Limits) -> _Message:
    """The JSON body of a request. Raises UsageError for another message and for one without end."""
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client closed the connection")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limits.document_bytes:
            raise UsageError(f"the request has more than {limits.document_bytes} bytes")
    try:
        return decode(bytes(body), kind)
    except ValueError as err:
        raise UsageError(f"the request is not understood: {err}") from None
