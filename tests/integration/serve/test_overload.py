# SPDX-License-Identifier: BSD-3-Clause
"""Clients that send without end, read nothing or come in numbers: what they cost a server, and who still gets in."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from channel_tools.conda.package import PackageRef
from channel_tools.publish.server.protocol import API, SetRequest, encode
from channel_tools.serve.server import raise_files_limit
from tests.support.overload import ATTACKS, begin_peak, memory_kib, peak_kib, send_without_end, wait_until_idle
from tests.support.packages import REGISTRY
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.serving import Server, make_token, running

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_MIB = 1 << 20
_ALLOWED_KIB = 24 << 10
"""What a worker may grow by under one of the attacks."""
_EACH_KIB = 1 << 10
"""What each client that reads nothing may cost: some pieces of its file, which wait between granian and its socket."""
_SETTLED_S = 10.0
_CROWD = 900
_HEADER_S = 5.0
"""How long the server waits for a header, and for the next request on a connection."""
_INDEX = "/open/linux-64/repodata.json"
_PACKAGE = "/open/linux-64/big-1-0.conda"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("overload")
    folder = work / "channels" / "open" / "linux-64"
    folder.mkdir(parents=True)
    (folder / "repodata.json").write_bytes(b" " * (7 * _MIB))
    (folder / "big-1-0.conda").write_bytes(bytes(7 * _MIB))
    with running(work / "channels", "--public", "open", work=work) as running_server:
        yield running_server


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_sent_without_end_takes_no_memory(server: Server, attack: str) -> None:
    (worker,) = server.workers()
    before = begin_peak(worker)
    with connect(server) as connection:
        send_without_end(connection, ATTACKS[attack](), worker)
        assert server.ask("/health").status == 200
        grown = peak_kib(worker) - before
    assert grown < _ALLOWED_KIB, f"{grown >> 10} MiB"
    assert server.workers() == [worker]


CROWDS = {
    "range-of-an-index": f"GET {_INDEX} HTTP/1.1\r\nHost: x\r\nRange: bytes=1-\r\n\r\n".encode(),
    "ranges-of-an-index": f"GET {_INDEX} HTTP/1.1\r\nHost: x\r\nRange: bytes=1-3000000,4000000-\r\n\r\n".encode(),
    "download": f"GET {_PACKAGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    "pipelined": b"GET /h HTTP/1.1\r\nHost: x\r\n\r\n" * 9000,
    "download-and-more": f"GET {_PACKAGE} HTTP/1.1\r\nHost: x\r\n\r\n".encode() + b"a" * 250_000,
    "headers": b"GET / HTTP/1.1\r\nHost: x\r\na: " + b"b" * 16_000,
}


@pytest.mark.parametrize("crowd", CROWDS)
def test_many_clients_that_read_nothing_take_little_memory(server: Server, crowd: str) -> None:
    (worker,) = server.workers()
    before = begin_peak(worker)
    with ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(200)]
        for connection in connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
            connection.send(CROWDS[crowd])
        wait_until_idle(worker, limit_s=_SETTLED_S)
        assert server.ask("/health").status == 200
        grown = peak_kib(worker) - before
    assert grown < len(connections) * _EACH_KIB, f"{grown >> 10} MiB"


@pytest.fixture
def open_files() -> Iterator[int]:
    """How many files the tests may open at once: all that the system allows, not a login's 1024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield raise_files_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_others_are_answered_beside_many_idle_connections_which_are_closed_in_time(
    tmp_path: Path, open_files: int
) -> None:
    """Also where they take all the connections that the server has."""
    if 0 <= open_files < 2 * _CROWD:
        pytest.skip(f"{_CROWD} connections need more open files than the hard limit here (ulimit -Hn), {open_files}")
    (tmp_path / "channels").mkdir()
    with (
        running(tmp_path / "channels", "--connections", "64", work=tmp_path) as small,
        ExitStack() as stack,
    ):
        idle = [stack.enter_context(connect(small)) for _ in range(_CROWD)]
        for number, connection in enumerate(idle):
            if number % 2:
                connection.send(b"GET /health HTTP/1.1\r\nHost: x\r\na: ")
        begun_s = time.monotonic()
        assert small.ask("/health").status == 200
        rounds = _CROWD / 64
        assert time.monotonic() - begun_s < (rounds + 3) * _HEADER_S
        for connection in idle[:10]:
            assert connection.recv(100) == b"" or connection.recv(1) == b""


DRIPS = {
    "header": [b"GET /health HTTP/1.1\r\n", *([b"a: b\r\n"] * 40)],
    "half a header": [b"GET /health HTTP/1.1\r\nHost: x\r\na: ", *([b"b"] * 40)],
    "nothing": [b""] * 40,
    "between requests": [b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", *([b""] * 40)],
}


@pytest.mark.parametrize("drip", DRIPS)
def test_a_header_that_takes_too_long_ends_the_connection(server: Server, drip: str) -> None:
    """However often a part of it comes."""
    with connect(server) as connection:
        begun_s = time.monotonic()
        for piece in DRIPS[drip]:
            with contextlib.suppress(ConnectionError):
                connection.sendall(piece)
            if ended(connection, wait_s=0.5):
                break
        assert time.monotonic() - begun_s < 3 * _HEADER_S
        assert ended(connection, wait_s=0.5)


def ended(connection: socket.socket, *, wait_s: float) -> bool:
    """Whether the server closed the connection, after reading what it said."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while poll.poll(wait_s * 1000):
        try:
            if not connection.recv(1 << 16):
                return True
        except ConnectionError:
            return True
    return False


def posting(path: str, token: str, body: bytes) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", f"Content-Length: {len(body)}")
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def test_documents_of_a_publisher_fill_no_memory(server: Server) -> None:
    token = make_token(server.root, labels=None, access="write")
    body = b'{"label": "main", "reason": "x", "keys": [' + b'"a",' * 1_900_000 + b'"a"]}'
    head = posting(f"{API}/open/yank", token, body)
    (worker,) = server.workers()
    before = begin_peak(worker)
    statuses = []

    def post() -> None:
        with connect(server) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(head + body)
            statuses.append(connection.recv(12)[9:])

    threads = [threading.Thread(target=post) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {b"400", b"503"}
    assert b"400" in statuses
    assert peak_kib(worker) - before < 220 << 10
    assert server.ask("/health").status == 200


def test_a_large_answer_waits_on_the_disk_for_who_does_not_take_it(server: Server) -> None:
    token = make_token(server.root, labels=None, access="write")
    files = tuple(
        PackageRef(subdir="noarch", file_name=f"a{number}-1-0.conda", sha256="0" * 64, size_bytes=1, foundation=False)
        for number in range(4_000)
    )
    body = encode(SetRequest(label="main", name="many", foundation=REGISTRY, files=files))
    headers = {"Authorization": f"Bearer {token}"}
    answer = server.ask(f"{API}/new/sets", method="POST", headers=headers, body=body)
    assert answer.status == 201
    assert len(json.loads(answer.body)["missing"]) == 4_000
    head = posting(f"{API}/new/sets", token, body)
    (worker,) = server.workers()
    before = begin_peak(worker)
    with ExitStack() as stack:
        for _ in range(3):
            connection = stack.enter_context(connect(server))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(head + body)
            assert connection.recv(12)[9:] == b"201"
        assert memory_kib(worker) - before < _ALLOWED_KIB
