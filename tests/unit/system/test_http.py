# SPDX-License-Identifier: BSD-3-Clause
"""The HTTP client by itself: proxies, redirects, pauses, limits, and downloads that continue."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import NetworkError
from channel_tools.system.http.client import HttpClient, MissingError, proxy_of
from channel_tools.system.http.download import Download, download
from channel_tools.system.http.pace import RateLimit, Retry, TransientError, retry_after_s
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

CONTENT = bytes(range(256)) * 1000
AUTHORIZATION = "Basic dXNlcjp3b3Jk"


def client(**environ: str) -> HttpClient:
    return make_http_client(environ, retry=Retry(first_wait_s=0.001))


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("http://host/a", {}, None),
        ("http://host/a", {"HTTP_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ("http://host/a", {"http_proxy": "proxy:3128", "HTTP_PROXY": "http://other"}, "http://proxy:3128"),
        ("https://host/a", {"HTTP_PROXY": "http://proxy"}, None),
        ("https://host/a", {"HTTPS_PROXY": "http://proxy"}, "http://proxy"),
        ("http://host/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "*"}, None),
        ("http://host/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "other, host"}, None),
        ("http://HOST/a", {"HTTP_PROXY": "http://proxy", "no_proxy": "Host"}, None),
        ("http://a.example/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": ".example"}, None),
        ("http://a.example/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "example"}, None),
        ("http://aexample/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "example,,"}, "http://proxy"),
        ("http://host:81/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "host:81"}, None),
        ("http://host:82/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "host:81"}, "http://proxy"),
        ("http://10.1.2.3/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "10.0.0.0/8"}, "http://proxy"),
        ("http://[::1]:80/a", {"HTTP_PROXY": "http://proxy", "NO_PROXY": "[::1]"}, None),
    ],
)
def test_proxies_are_those_of_the_environment(url: str, environ: dict[str, str], expected: str | None) -> None:
    assert proxy_of(urlsplit(url), environ) == expected


def test_a_proxy_that_is_not_one_is_named_without_its_password() -> None:
    with pytest.raises(NetworkError, match="the proxy socks5://proxy:1080 cannot be used") as caught:
        client(HTTP_PROXY="socks5://me:secret@proxy:1080").read("http://host/a", limit_bytes=10)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, 0.0),
        ("", 0.0),
        ("7", 7.0),
        ("Sun, 01 Mar 2026 00:01:30 GMT", 90.0),
        ("Sat, 28 Feb 2026 23:59:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, expected: float) -> None:
    headers = {} if value is None else {"Retry-After": value}
    assert retry_after_s(headers, now=datetime(2026, 3, 1, tzinfo=UTC)) == expected


def test_pauses_double_vary_and_end() -> None:
    retry = Retry(attempts=9, first_wait_s=1.0, longest_wait_s=8.0)
    for failures, most in ((0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (8, 8.0)):
        waits = {retry.wait_s(failures) for _ in range(20)}
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(waits) > 1 or not most
    assert retry.wait_s(1, 30.0) == 30.0
    assert not retry.is_last(8)
    assert retry.is_last(9)
    assert retry.is_last(1, retry.longest_retry_after_s + 1)


def hops(to: str = "") -> ScriptedServer:
    """Redirects as often as the path's number says, then gives what it was sent as credentials."""

    def answer(asked: Asked) -> Reply:
        number = int(asked.path.rpartition("/")[2])
        if number:
            return 302, {"Location": f"{to}/{number - 1}"}, b"over there"
        return 200, {}, asked.headers.get("Authorization", "none").encode()

    return ScriptedServer(answer)


def test_ten_redirects_are_followed_with_their_credentials_and_no_more() -> None:
    with scripted(hops()) as server:
        address = server.origin.replace("//", "//user:word@")
        assert client().read(f"{address}/10", limit_bytes=100) == AUTHORIZATION.encode()
        with pytest.raises(NetworkError) as caught:
            client().read(f"{address}/11", limit_bytes=100)
        assert str(caught.value) == f"more than 10 redirects from {server.origin}/11"


def test_credentials_do_not_follow_a_redirect_to_another_host() -> None:
    with scripted(hops()) as thief, scripted(hops(to=thief.origin)) as server:
        address = server.origin.replace("//", "//user:word@")
        assert client().read(f"{address}/1", limit_bytes=100) == b"none"
        assert server.asked[0].headers["Authorization"] == AUTHORIZATION


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/x"])
def test_a_redirect_to_what_is_not_http_is_refused(target: str) -> None:
    with scripted(ScriptedServer(lambda _asked: (302, {"Location": target}, b""))) as server:
        with pytest.raises(NetworkError, match="not a valid address"):
            client().read(f"{server.origin}/a", limit_bytes=100)
        assert len(server.asked) == 1


def test_a_small_file_has_an_end() -> None:
    with scripted(ScriptedServer(lambda _asked: (200, {}, CONTENT))) as server:
        assert client().read(server.origin, limit_bytes=len(CONTENT)) == CONTENT
        with pytest.raises(NetworkError, match="longer than 1000 bytes"):
            client().read(server.origin, limit_bytes=1000)


def test_a_file_that_is_missing_is_told_apart() -> None:
    with scripted(ScriptedServer(lambda _asked: (404, {}, b""))) as server:
        with pytest.raises(MissingError, match="HTTP status 404: there is no such file"):
            client().read(server.origin, limit_bytes=10)
        assert len(server.asked) == 1


def test_connections_are_kept() -> None:
    with scripted(ScriptedServer(lambda _asked: (200, {}, CONTENT))) as server:
        one = client()
        for _ in range(5):
            one.read(server.origin, limit_bytes=len(CONTENT))
        assert len({asked.peer_port for asked in server.asked}) == 1


def test_the_connection_of_a_body_that_was_not_read_is_not_used_again() -> None:
    with scripted(ScriptedServer(lambda _asked: (200, {}, CONTENT))) as server:
        one = client()
        with one.get(server.origin) as response:
            assert response.read1(10) == CONTENT[:10]
        assert one.read(server.origin, limit_bytes=len(CONTENT)) == CONTENT
        assert len({asked.peer_port for asked in server.asked}) == 2


def test_tls_is_verified() -> None:
    context = client()._manager("https", None).connection_pool_kw["ssl_context"]
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


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


def test_a_request_that_fails_says_why_and_not_where() -> None:
    with pytest.raises(TransientError) as caught, client().open("GET", "http://127.0.0.1:9/t/secret/x"):
        pass
    assert "refused" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_limit_holds_for_all_together() -> None:
    now, slept = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        now[0] += seconds

    limit = RateLimit(1000, clock=lambda: now[0], sleep=sleep)
    for _ in range(50):
        limit.spend(100)
    assert now[0] == pytest.approx(5.0, abs=0.2)
    now[0] += 100  # idle time is not saved up
    for _ in range(10):
        limit.spend(100)
    assert slept[0] == pytest.approx(6.0, abs=0.3)
