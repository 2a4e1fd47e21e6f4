# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import DiskFullError, NetworkError
from channel_tools.system.http.client import HttpClient
from channel_tools.system.http.download import Download, download
from channel_tools.system.http.pace import Retry
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

CONTENT = bytes(range(256)) * 1000


def client(**environ: str) -> HttpClient:
    return make_http_client(environ, retry=Retry(first_wait_s=0.001))


def wanted(url: str, part: Path) -> Download:
    return Download(
        url=url,
        folder=Beneath(root=part.parent),
        part=part.name,
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        on_bytes=lambda _count: None,
    )


def test_a_download_continues_only_the_file_that_it_began(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        if "Range" not in asked.headers:
            return 200, {"ETag": '"one"', "Content-Length": str(len(CONTENT)), "Connection": "close"}, CONTENT[:200_000]
        assert asked.headers["If-Range"] == '"one"'
        return 200, {"ETag": '"two"'}, CONTENT  # another file by now: all of it is sent

    with scripted(ScriptedServer(answer)) as server:
        download(client(), wanted(f"{server.origin}/a", tmp_path / "part"))
        assert [asked.headers.get("Range") for asked in server.asked] == [None, "bytes=200000-"]
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_a_range_that_was_not_asked_for_is_not_taken(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        if "Range" in asked.headers:
            return 206, {"Content-Range": f"bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}"}, CONTENT[7:]
        return 200, {}, CONTENT

    (tmp_path / "part").write_bytes(CONTENT[:1000])
    with scripted(ScriptedServer(answer)) as server, pytest.raises(NetworkError, match="requested bytes from 1000"):
        download(client(), wanted(f"{server.origin}/a", tmp_path / "part"))


def test_a_long_part_of_another_file_does_not_spoil_the_download_that_is_cut_again_and_again(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        start = int(asked.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if start >= len(CONTENT):
            return 416, {}, b""
        headers = {"Content-Range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}", "Connection": "close"}
        rest = {"Content-Length": str(len(CONTENT) - start)}
        return 206 if start else 200, headers | rest, CONTENT[start : start + 70_000]

    (tmp_path / "part").write_bytes(b"x" * 2 * len(CONTENT))
    with scripted(ScriptedServer(answer)) as server:
        patient = make_http_client({}, retry=Retry(attempts=2, first_wait_s=0.001))
        download(patient, wanted(f"{server.origin}/a", tmp_path / "part"))
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_a_file_that_no_disk_has_room_for_is_not_begun(tmp_path: Path) -> None:
    head = {"Content-Length": str(1 << 60), "Connection": "close"}
    with (
        scripted(ScriptedServer(lambda _asked: (200, head, CONTENT))) as server,
        pytest.raises(DiskFullError, match=f"{1 << 60} bytes follow, and .* has room for"),
    ):
        download(client(), wanted(f"{server.origin}/a", tmp_path / "part"))
    assert not (tmp_path / "part").exists()


def test_a_file_that_never_ends_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channel_tools.system.http.download._MOST_BYTES", 100_000)
    with (
        scripted(ScriptedServer(lambda _asked: (200, {}, CONTENT))) as server,
        pytest.raises(NetworkError, match="no file of that size is read"),
    ):
        download(client(), wanted(f"{server.origin}/a", tmp_path / "part"))
