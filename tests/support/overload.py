# SPDX-License-Identifier: BSD-3-Clause
"""What clients without a token send to a server to exhaust it, and what that costs a process."""

from __future__ import annotations

import itertools
import re
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_MIB = 1 << 20
_SENT_BYTES = 40 * _MIB
_STALLED_S = 0.3
"""A server that takes nothing for so long, and does nothing, does not read on."""
_PACKAGE = "/open/linux-64/big-1-0.conda"
_LONG_BODY = b"Content-Length: 1073741824\r\n\r\n"
_CHUNKED = b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def memory_kib(process: int) -> int:
    """What a process takes now."""
    return _memory_kib(process, "VmRSS")


def peak_kib(process: int) -> int:
    """The most that it took since the test began."""
    return _memory_kib(process, "VmHWM")


def _memory_kib(process: int, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def begin_peak(process: int) -> int:
    """Forget the peak so far; what the process takes now."""
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return memory_kib(process)


def busy(process: int) -> int:
    """The processor time that it took so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_idle(process: int, *, limit_s: float) -> None:
    """Until a process takes no processor time for a second, or so long: it may have more to do than is of interest."""
    before, deadline = -1, time.monotonic() + limit_s
    while before != (before := busy(process)) and time.monotonic() < deadline:
        time.sleep(1)


def send_without_end(connection: socket.socket, pieces: Iterator[bytes], worker: int) -> None:
    """Send until the server closes the connection, or takes nothing any more; read nothing."""
    connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
    sent, piece = 0, b""
    try:
        connection.send(next(pieces))
        _ready(connection, select.POLLIN)  # the answer to a request that may end already
        while sent < _SENT_BYTES and (piece := piece or next(pieces, b"")):
            before = busy(worker)
            if not _ready(connection, select.POLLOUT):
                if busy(worker) == before:
                    return
                continue
            count = connection.send(piece)
            sent, piece = sent + count, piece[count:]
    except ConnectionError:
        return


def _ready(connection: socket.socket, event: int) -> bool:
    poll = select.poll()  # select takes no descriptor beyond 1024
    poll.register(connection, event)
    return bool(poll.poll(_STALLED_S * 1000))


def endless(begin: bytes, again: bytes) -> Iterator[bytes]:
    block = again * max(1, (256 << 10) // len(again))
    return itertools.chain([begin], itertools.repeat(block))


ATTACKS: dict[str, Callable[[], Iterator[bytes]]] = {
    "trailers": lambda: endless(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"a: b\r\n"),
    "one-trailer": lambda: endless(_CHUNKED + b"2\r\n{}\r\n0\r\na: ", b"b" * 1024),
    "extension-of-a-chunk": lambda: endless(_CHUNKED + b"2;a=", b"b" * 1024),
    "extensions-of-chunks": lambda: endless(_CHUNKED, b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b\r\nx\r\n"),
    "tiny-chunks": lambda: endless(_CHUNKED, b"1\r\nx\r\n"),
    "pipelined": lambda: endless(b"", b"GET /h HTTP/1.1\r\nHost: x\r\n\r\n"),
    "pipelined-downloads": lambda: endless(b"", f"GET {_PACKAGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode()),
    "pipelined-kept-by-1.0": lambda: endless(b"", b"GET /h HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    "headers": lambda: endless(b"GET / HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n"),
    "short-headers": lambda: endless(b"", b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a:\r\n" * 3000 + b"\r\n"),
    "one-header": lambda: endless(b"GET / HTTP/1.1\r\nHost: x\r\na: ", b"b" * 1024),
    "request-line": lambda: endless(b"GET /", b"b" * 1024),
    "empty-lines": lambda: endless(b"", b"\r\n"),
    "body-of-get": lambda: endless(b"GET /health HTTP/1.1\r\nHost: x\r\n" + _LONG_BODY, bytes(1024)),
    "body-nobody-wants": lambda: endless(b"PUT /open/noarch/x-1-0.conda HTTP/1.1\r\n" + _LONG_BODY, bytes(1024)),
    "expect": lambda: endless(b"POST /health HTTP/1.1\r\nExpect: 100-continue\r\n" + _LONG_BODY, bytes(1024)),
    "upgrade": lambda: endless(
        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", bytes(1024)
    ),
    "connect": lambda: endless(b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /h HTTP/1.1\r\nHost: x\r\n\r\n"),
}
