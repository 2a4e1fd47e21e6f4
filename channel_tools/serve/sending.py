# SPDX-License-Identifier: BSD-3-Clause
"""An answer onto the wire: from memory, by the kernel where the server offers that, else in chunks."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from channel_tools.serve.asgi import SEND_FILE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from channel_tools.serve.answers import Answer
    from channel_tools.serve.asgi import Message, Scope, Send
    from channel_tools.serve.hotfiles import ServedFile
    from channel_tools.serve.protocol import FileSender
    from channel_tools.serve.ranges import ByteRange

    SendPart = Callable[[ByteRange], Awaitable[None]]

_CHUNK_BYTES = 1 << 18


class FileGoneError(Exception):
    """The file was replaced by another one between looking at it and opening it."""


async def send_answer(scope: Scope, send: Send, answer: Answer, file: ServedFile, *, head: bool) -> None:
    """Send status, headers and, unless ``head``, the body. Raises FileGoneError before anything was sent."""
    start = {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
    if head or not answer.body:
        await send(start)
        await send({"type": "http.response.body", "body": b""})
        return
    if len(answer.body) == 1 and isinstance(answer.body[0], bytes):
        await send(start)
        await send({"type": "http.response.body", "body": answer.body[0]})
        return
    if file.content is not None:
        await send(start)
        await send({"type": "http.response.body", "body": b"".join(_in_memory(answer, file.content))})
        return
    await _send_parts(scope, send, start, answer, file)


def _in_memory(answer: Answer, content: bytes) -> list[bytes]:
    return [part if isinstance(part, bytes) else content[part.start : part.end] for part in answer.body]


async def _send_parts(scope: Scope, send: Send, start: Message, answer: Answer, file: ServedFile) -> None:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as err:
        raise FileGoneError(file.path) from err
    try:
        status = os.fstat(descriptor)
        if (status.st_ino, status.st_size, status.st_mtime_ns) != file.signature:
            raise FileGoneError(file.path)
        send_part = _part_sender(scope, send, descriptor)
        await send(start)
        for part in answer.body:
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                await send_part(part)
        await send({"type": "http.response.body", "body": b""})
    finally:
        os.close(descriptor)


def _part_sender(scope: Scope, send: Send, descriptor: int) -> SendPart:
    send_file: FileSender | None = (scope.get("extensions") or {}).get(SEND_FILE)
    if send_file is None:
        return _chunk_sender(send, descriptor)
    send_file.prepare()

    async def by_kernel(part: ByteRange) -> None:
        await send_file(descriptor, part.start, part.end)

    return by_kernel


def _chunk_sender(send: Send, descriptor: int) -> SendPart:
    async def in_chunks(part: ByteRange) -> None:
        position = part.start
        while position < part.end:
            size = min(_CHUNK_BYTES, part.end - position)
            chunk = await asyncio.to_thread(os.pread, descriptor, size, position)
            if not chunk:
                raise ConnectionError("the file became shorter while it was sent")
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            position += len(chunk)

    return in_chunks
