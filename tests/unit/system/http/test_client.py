# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from channel_tools.conda.clients import ChannelCredentials, make_http_client
from channel_tools.system.errors import ConfigError, NetworkError
from channel_tools.system.http.client import HttpClient, MissingError, netrc_authorization, proxy_of
from channel_tools.system.http.pace import Retry, Timeouts, TransientError
from tests.support.endless_server import endless
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
        with pytest.raises(NetworkError, match="it has 256000 bytes; at most 1000 are read"):
            client().read(server.origin, limit_bytes=1000)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS: dict[str, tuple[bytes, bytes, str]] = {
    "length-of-a-tebibyte": (HEAD + b"Content-Length: 1099511627776\r\n\r\n", b"", "it has 1099511627776 bytes"),
    "chunk-of-a-tebibyte": (CHUNKED + b"10000000000\r\n", b"x" * 4096, "longer than 100000 bytes"),
    "no-end": (HEAD + b"\r\n", b"[" * 4096, "longer than 100000 bytes"),
    "no-end-of-chunks": (CHUNKED, b"5\r\n[[[[[\r\n" * 400, "longer than 100000 bytes"),
    "slow-status": (b"HTT", b"P", "timed out"),
    "slow-headers": (HEAD + b"X-Slow: ", b"x", "timed out"),
    "slow-body": (HEAD + b"Content-Length: 5000\r\n\r\n", b"x", "only .* bytes were received"),
    "slow-body-without-length": (HEAD + b"\r\n", b"x", "only .* bytes were received"),
    "slow-chunks": (CHUNKED, b"1\r\nx\r\n", "only .* bytes were received"),
    "slow-line-before-a-chunk": (CHUNKED + b"5;", b"x", "does not end within"),
    "slow-trailer": (CHUNKED + b"1\r\nx\r\n0\r\nX-Slow: ", b"x", "does not end within"),
    "silent-body": (HEAD + b"Content-Length: 5000\r\n\r\n", b"", "timed out"),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_does_not_end_has_an_end(kind: str) -> None:
    head, piece, words = ENDLESS[kind]
    pause_s = 0.02 if len(piece) < 10 else 0.0
    with endless(head, piece, pause_s) as address:
        patient = HttpClient(
            environ={},
            credentials=ChannelCredentials({}),
            timeouts=Timeouts(read_s=0.2),
            retry=Retry(attempts=2, first_wait_s=0.01),
        )
        with pytest.raises(NetworkError, match=words) as caught:
            patient.read(address, limit_bytes=100_000)
        assert caught.value.message.startswith(address)


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


def test_a_request_that_fails_says_why_and_not_where() -> None:
    with pytest.raises(TransientError) as caught, client().open("GET", "http://127.0.0.1:9/t/secret/x"):
        pass
    assert "refused" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_netrc_of_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_bytes("machine höst login a password secret\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read as credentials") as caught:
        netrc_authorization("host", {"HOME": str(tmp_path)})
    assert caught.value.path == tmp_path / ".netrc"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("proxy", ["http://pr\udcf6xy:3128", "http://pröxy:3128", "http://proxy:3128\n"])
def test_a_proxy_with_characters_that_no_address_has_is_an_error(proxy: str) -> None:
    with pytest.raises(NetworkError, match="the proxy for http addresses has characters") as caught:
        proxy_of(urlsplit("http://host/a"), {"http_proxy": proxy})
    assert "http_proxy" in str(caught.value.hint)
