# SPDX-License-Identifier: BSD-3-Clause
"""Fetching from servers of all manners: what arrives under its name is right, or nothing does."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.conda.clients import ChannelCredentials
from channel_tools.conda.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.system.errors import ChannelError, IntegrityError, NetworkError
from channel_tools.system.http.client import HttpClient
from channel_tools.system.http.pace import Timeouts
from channel_tools.system.progress import SilentProgress
from tests.unit.mirror.bundles import http_client
from tests.unit.sources.server import Served, serving

CONTENT = bytes(range(256)) * 4000
IMPATIENT = Timeouts(read_s=0.05)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def wanted(address: str, path: str = "/a.conda", *, sha256: str = SHA256, size: int = len(CONTENT)) -> RemoteFile:
    return RemoteFile(path="x/a.conda", size_bytes=size, sha256=sha256, url=address + path)


def get(files: list[RemoteFile], folder: Path, *, client: HttpClient | None = None) -> tuple[int, int]:
    options = FetchOptions(client=client or http_client(), jobs=2)
    return fetch_files(files, folder, options=options, progress=SilentProgress())


def test_a_file_arrives(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=CONTENT)}) as host:
        assert get([wanted(host.address)], tmp_path) == (1, len(CONTENT))
        assert get([wanted(host.address)], tmp_path) == (0, 0)
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["a.conda"]
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


def test_what_was_cut_off_is_continued(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=CONTENT, cut_after=[500_000, 300_000])}) as host:
        get([wanted(host.address)], tmp_path)
    assert [asked for _, asked in host.requests] == [None, "bytes=500000-", "bytes=800000-"]
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_is_asked_for_all(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=CONTENT, ranges=False, cut_after=[500_000])}) as host:
        get([wanted(host.address)], tmp_path)
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


def test_the_next_run_continues_a_part(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.conda.part").write_bytes(CONTENT[:1000])
    with serving({"/a.conda": Served(content=CONTENT)}) as host:
        get([wanted(host.address)], tmp_path)
    assert [asked for _, asked in host.requests] == ["bytes=1000-"]


@pytest.mark.parametrize("part", [b"other bytes", CONTENT + b"more", b"x" * len(CONTENT)])
def test_a_part_of_another_file_is_thrown_away(tmp_path: Path, part: bytes) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.conda.part").write_bytes(part)
    with serving({"/a.conda": Served(content=CONTENT)}) as host:
        get([wanted(host.address)], tmp_path)
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


def test_a_file_that_is_there_but_wrong_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.conda").write_bytes(b"x" * len(CONTENT))
    with serving({"/a.conda": Served(content=CONTENT)}) as host:
        assert get([wanted(host.address)], tmp_path) == (1, len(CONTENT))
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "served",
    [
        Served(content=b"x" * len(CONTENT)),
        Served(content=CONTENT[:-1] + b"x"),
        Served(content=b"x" + CONTENT),
    ],
    ids=["other", "last-byte", "longer"],
)
def test_other_bytes_are_refused(tmp_path: Path, served: Served) -> None:
    with serving({"/a.conda": served}) as host, pytest.raises(IntegrityError, match="expected"):
        get([wanted(host.address)], tmp_path)
    assert list((tmp_path / "x").iterdir()) == []


def test_a_server_that_announces_more_than_it_sends(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=CONTENT[:-5], announced=len(CONTENT))}) as host:
        with pytest.raises(NetworkError, match=r"/a\.conda"):
            get([wanted(host.address)], tmp_path)
        host.paths["/a.conda"] = Served(content=CONTENT)
        get([wanted(host.address)], tmp_path)


def test_a_server_that_announces_less_than_it_sends(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=CONTENT, announced=400_000)}) as host:
        get([wanted(host.address)], tmp_path)
    assert [asked for _, asked in host.requests] == [None, "bytes=400000-", "bytes=800000-"]
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "words"), [(404, "no such file"), (401, "token"), (403, "do not permit reading")])
def test_answers_that_will_not_change_end_it_at_once(tmp_path: Path, status: int, words: str) -> None:
    with serving({"/a.conda": Served(content=b"", status=status)}) as host:
        with pytest.raises(NetworkError, match=words):
            get([wanted(host.address)], tmp_path)
        assert len(host.requests) == 1


def test_answers_that_may_change_are_asked_for_again(tmp_path: Path) -> None:
    with serving({"/a.conda": Served(content=b"", status=503)}) as host:
        with pytest.raises(NetworkError, match="503"):
            get([wanted(host.address)], tmp_path)
        assert len(host.requests) == 5


@contextlib.contextmanager
def raw_server(*replies: bytes, drip: bytes = b"") -> Iterator[str]:
    """Answers each connection with the next bytes, then stalls, or drips a byte now and then, until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(connection: socket.socket, reply: bytes) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(reply)
            while not ended.wait(0.01 if drip else 0.2):
                connection.sendall(drip)

    def serve() -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                connection, _ = listener.accept()
                reply = replies[min(number, len(replies) - 1)]
                threading.Thread(target=answer, args=(connection, reply), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n", HEAD], ids=["silent", "headers", "body"])
def test_a_peer_that_stalls_is_given_up(tmp_path: Path, reply: bytes) -> None:
    given_up = r"a\.conda: .*(timed out|does not end within)"
    with raw_server(reply) as address, pytest.raises(NetworkError, match=given_up):
        get([wanted(address)], tmp_path, client=http_client(timeouts=IMPATIENT))


def test_a_peer_that_drips_is_given_up(tmp_path: Path) -> None:
    client = http_client(timeouts=Timeouts(read_s=0.1, slowest_bytes_per_s=10_000))
    options = FetchOptions(client=client)
    # on a machine that is busy itself, the drops may come too late even for a read
    with (
        raw_server(HEAD, drip=b"x") as address,
        pytest.raises(NetworkError, match=r"only .* bytes were received|timed out"),
    ):
        fetch_files([wanted(address)], tmp_path, options=options, progress=SilentProgress())


def test_garbage_in_the_place_of_http(tmp_path: Path) -> None:
    with raw_server(b"\x00\xff" * 1000) as address, pytest.raises(NetworkError):
        get([wanted(address)], tmp_path, client=http_client(timeouts=IMPATIENT))


def test_endless_headers(tmp_path: Path) -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000) as address, pytest.raises(NetworkError):
        get([wanted(address)], tmp_path, client=http_client(timeouts=IMPATIENT))


def test_nobody_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NetworkError, match=r"a\.conda"):
        get([wanted(f"http://127.0.0.1:{port}")], tmp_path)


def test_one_failure_ends_the_others_and_keeps_what_came(tmp_path: Path) -> None:
    paths = {"/a.conda": Served(content=CONTENT), "/b.conda": Served(content=b"", status=404)}
    with serving(paths) as host:
        good = wanted(host.address)
        bad = RemoteFile(path="x/b.conda", size_bytes=5, sha256="0" * 64, url=f"{host.address}/b.conda")
        get([good], tmp_path)
        with pytest.raises(NetworkError, match=r"b\.conda"):
            get([good, bad], tmp_path)
    assert (tmp_path / "x" / "a.conda").read_bytes() == CONTENT


def test_a_local_channel_that_lacks_a_file_it_lists(tmp_path: Path) -> None:
    with pytest.raises(ChannelError, match="does not exist"):
        get([wanted((tmp_path / "channel").as_uri())], tmp_path / "out")
    (tmp_path / "channel").mkdir()
    (tmp_path / "channel" / "a.conda").write_bytes(CONTENT + b"x")
    with pytest.raises(IntegrityError, match="is not the file"):
        get([wanted((tmp_path / "channel").as_uri())], tmp_path / "out")


def test_secrets_are_in_no_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for address in (f"http://user:secret@127.0.0.1:{port}", f"http://127.0.0.1:{port}/t/secret"):
        with pytest.raises(NetworkError) as caught:
            get([wanted(address)], tmp_path)
        assert "secret" not in f"{caught.value} {caught.value.hint}"
    text = "HTTPConnectionPool(...) with url: /t/secret/c (http://u:secret@h/c)"
    assert "secret" not in ChannelCredentials({}).redact_text(text)
