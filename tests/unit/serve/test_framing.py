# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import itertools

import pytest

from channel_tools.serve.framing import HEADER_LIMIT_BYTES, HEADERS_LIMIT, Framing, FramingError

CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUESTS = {
    "plain": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "kept by 1.0": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "after empty lines": b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no body": b"POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n",
    "body": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\nGET \r\n\r",
    "chunks": CHUNKED + b"5;a=b\r\nhello\r\nA\r\n012345\r\n\r\n\r\n0\r\na: b\r\nc: d\r\n\r\n",
    "no chunks": CHUNKED + b"0\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
}


def ends(stream: bytes, piece: int) -> list[int]:
    """After how many bytes of a stream a request ended, when it comes in pieces of this size."""
    framing, found = Framing(), []
    for begin in range(0, len(stream), piece):
        data, position = stream[begin : begin + piece], 0
        while position < len(data):
            size = framing.advance(data, position)
            assert 0 < size <= len(data) - position
            position += size
            if framing.in_headers and not framing.header_bytes:
                found.append(begin + position)
    return found


@pytest.mark.parametrize("names", list(itertools.product(REQUESTS, repeat=2)), ids="-then-".join)
def test_a_request_ends_where_it_does_however_it_is_cut(names: tuple[str, str]) -> None:
    first, second = (REQUESTS[name] for name in names)
    for piece in (1, 2, 3, 5, 1000):
        assert ends(first + second, piece) == [len(first), len(first) + len(second)]


@pytest.mark.parametrize(
    "stream",
    [
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 5\r\n\r\nGET /",
        CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
        CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
        CHUNKED + b"1\nx\n0\n\n",
    ],
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_a_request_with_two_readings_is_rejected(stream: bytes, piece: int) -> None:
    with pytest.raises(FramingError) as rejected:
        ends(stream + REQUESTS["plain"], piece)
    assert rejected.value.status == b"400 Bad Request"


MANY = b"a: b\r\n" * (HEADERS_LIMIT + 2)
LONG = b"a: " + b"b" * HEADER_LIMIT_BYTES + b"\r\n"


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + MANY, b"431"),
        (b"GET / HTTP/1.1\r\n" + LONG, b"431"),
        (b"GET /" + b"b" * HEADER_LIMIT_BYTES, b"431"),
        (b"\r\n" * HEADER_LIMIT_BYTES, b"431"),
        (CHUNKED + b"0\r\n" + MANY + b"\r\n", b"431"),
        (CHUNKED + b"0\r\n" + LONG, b"431"),
        (CHUNKED + b"1;" + LONG, b"400"),
        (CHUNKED + b"1;abcdefgh\r\nx\r\n" * HEADER_LIMIT_BYTES, b"400"),
        (CHUNKED + b"1\r\nx\r\n" * HEADER_LIMIT_BYTES, b"400"),
        (CHUNKED + b"1" * 40 + b"\r\n", b"400"),
    ],
)
@pytest.mark.parametrize("piece", [1, 1000, 1_000_000])
def test_framing_without_end_is_rejected(stream: bytes, status: bytes, piece: int) -> None:
    with pytest.raises(FramingError) as rejected:
        ends(stream, piece)
    assert rejected.value.status[:3] == status


def test_as_many_headers_as_are_allowed_are_taken_in_each_request() -> None:
    request = b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * HEADERS_LIMIT + b"\r\n"
    assert ends(request * 3, 1000) == [len(request), 2 * len(request), 3 * len(request)]


def test_a_long_body_in_small_chunks_is_taken() -> None:
    request = CHUNKED + b"8\r\nabcdefgh\r\n" * 10_000 + b"0\r\n\r\n"
    assert ends(request, 16 << 10) == [len(request)]
