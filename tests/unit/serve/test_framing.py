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


HOST = b"Host: x\r\n"
ONCE = {
    "no host": b"",
    "two hosts": HOST * 2,
    "two other hosts": HOST + b"hOST: y\r\n",
    "hosts around another header": HOST + b"a: b\r\n" + HOST,
    "a host with a space": b"Host: x y\r\n",
    "a host with a user": b"Host: me@x\r\n",
    "a host with a path": b"Host: x/y\r\n",
    "a host with two ports": b"Host: x:1:2\r\n",
    "two credentials": HOST + b"Authorization: Bearer a\r\nauthorization: Bearer b\r\n",
    "the same credentials twice": HOST + b"Authorization: Bearer a\r\n" * 2,
    "two ranges": HOST + b"Range: bytes=0-1\r\nRange: bytes=2-3\r\n",
    "two checksums": HOST + b"X-Checksum-Sha256: a\r\n" * 2,
}


@pytest.mark.parametrize("kind", ONCE)
@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_headers_with_one_value_come_once_and_a_host_is_there(kind: str, piece: int) -> None:
    """RFC 9112, 3.2; RFC 9110, 5.3. Also of the second request of a connection."""
    stream = b"GET / HTTP/1.1\r\n" + ONCE[kind] + b"\r\n"
    for before in (b"", REQUESTS["plain"]):
        with pytest.raises(FramingError) as rejected:
            ends(before + stream, piece)
        assert rejected.value.status == b"400 Bad Request"


@pytest.mark.parametrize("host", [b"", b"x", b"x:", b"x:80", b"[::1]:80", b"127.0.0.1:8080", b"a-b.example"])
def test_hosts_that_are_taken(host: bytes) -> None:
    stream = b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    assert ends(stream * 2, 1000) == [len(stream), 2 * len(stream)]


def test_trailers_are_no_headers() -> None:
    stream = CHUNKED + b"0\r\nHost: y\r\nHost: z\r\n\r\n"
    assert ends(stream, 1000) == [len(stream)]


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
    request = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * (HEADERS_LIMIT - 1) + b"\r\n"
    assert ends(request * 3, 1000) == [len(request), 2 * len(request), 3 * len(request)]


def test_a_long_body_in_small_chunks_is_taken() -> None:
    request = CHUNKED + b"8\r\nabcdefgh\r\n" * 10_000 + b"0\r\n\r\n"
    assert ends(request, 16 << 10) == [len(request)]
