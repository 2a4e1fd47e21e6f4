# SPDX-License-Identifier: BSD-3-Clause
"""One table of rules for everything that fetches or sends: sources, mirrors and uploads."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from channel_tools.conda.clients import make_http_client
from channel_tools.conda.fetch import FetchOptions, RemoteFile, fetch_files
from channel_tools.publish.server.target import ServerConnection, ServerTarget, server_address
from channel_tools.sources.fetch import fetch_sources
from channel_tools.sources.model import NeededSource
from channel_tools.sources.store import SourceStore
from channel_tools.system.errors import ChannelToolsError, NetworkError
from channel_tools.system.http.client import HttpClient
from channel_tools.system.http.pace import Retry
from channel_tools.system.progress import SilentProgress
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

CONTENT = json.dumps({"labels": ["main"]}).encode()
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PATH = "/ours"
Use = Callable[[str, Path, HttpClient, Mapping[str, str]], None]
BASIC = "Basic bWU6c2VjcmV0"


def fetch_source(url: str, folder: Path, client: HttpClient, _environ: Mapping[str, str]) -> None:
    need = NeededSource(kind="url", identity=SHA256, urls=(url,), names=("labels.json",))
    store = SourceStore(folder=folder / "store")
    fetch_sources([need], store, client=client, jobs=1, progress=SilentProgress())


def mirror(url: str, folder: Path, client: HttpClient, _environ: Mapping[str, str]) -> None:
    file = RemoteFile(path="labels.json", size_bytes=len(CONTENT), sha256=SHA256, url=url)
    fetch_files([file], folder, options=FetchOptions(client=client), progress=SilentProgress())


def publish(url: str, _folder: Path, client: HttpClient, environ: Mapping[str, str]) -> None:
    target = ServerTarget(connection=ServerConnection(server_address(url, environ), client))
    assert target.labels() == ["main"]


USES: dict[str, Use] = {"sources": fetch_source, "mirror": mirror, "publish": publish}


@pytest.fixture(params=USES)
def use(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs one of the three against an address."""

    def run(url: str, environ: Mapping[str, str] | None = None, *, retry: Retry | None = None) -> None:
        known = environ or {}
        client = make_http_client(known, retry=retry or Retry(first_wait_s=0.001))
        USES[request.param](url, tmp_path / "work", client, known)

    return run


def good(_asked: Asked) -> Reply:
    return 200, {"Content-Type": "application/json"}, CONTENT


def replies(*answers: Reply | None) -> ScriptedServer:
    """These answers in turn, the last one for good."""
    waiting = list(answers)
    return ScriptedServer(lambda asked: good(asked) if not waiting else waiting.pop(0))


def test_a_proxy_is_asked_for_the_whole_address(use: Callable[..., None]) -> None:
    with scripted(ScriptedServer(good)) as proxy:
        address = proxy.origin.replace("//", "//me:secret@")
        use(f"http://host.invalid{PATH}", {"HTTP_PROXY": address})
        assert proxy.asked[0].path.startswith("http://host.invalid/")
        headers = {name.lower(): value for name, value in proxy.asked[0].headers.items()}
        assert headers["proxy-authorization"] == BASIC
        assert "authorization" not in headers


def test_no_proxy_is_kept_to(use: Callable[..., None]) -> None:
    with scripted(ScriptedServer(good)) as server:
        use(f"{server.origin}{PATH}", {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.0/8"})
        assert server.asked


@pytest.mark.parametrize("where", ["netrc", "NETRC", "rattler", "address"])
def test_credentials_are_found_and_sent(use: Callable[..., None], tmp_path: Path, where: str) -> None:
    line = "machine 127.0.0.1 login me password secret\n"
    (tmp_path / ".netrc").write_text(line if where == "netrc" else "")
    (tmp_path / "other").write_text(line)
    (tmp_path / "kept.json").write_text(
        json.dumps({"127.0.0.1": {"BasicHTTP": {"username": "me", "password": "secret"}}})
    )
    environ = {"HOME": str(tmp_path)}
    if where == "NETRC":
        environ["NETRC"] = str(tmp_path / "other")
    if where == "rattler":
        environ["RATTLER_AUTH_FILE"] = str(tmp_path / "kept.json")
    with scripted(ScriptedServer(good)) as server:
        origin = server.origin.replace("//", "//me:secret@") if where == "address" else server.origin
        use(f"{origin}{PATH}", environ)
        assert {asked.headers.get("Authorization") for asked in server.asked} == {BASIC}


def test_a_busy_server_is_asked_again(use: Callable[..., None]) -> None:
    with scripted(replies((503, {}, b""), None, (429, {"Retry-After": "0"}, b""))) as server:
        use(f"{server.origin}{PATH}")
        assert len(server.asked) == 4


def test_retry_after_is_waited_for(use: Callable[..., None]) -> None:
    with scripted(replies((503, {"Retry-After": "1"}, b""))) as server:
        started_s = time.monotonic()
        use(f"{server.origin}{PATH}")
        assert time.monotonic() - started_s >= 1


def test_a_server_that_asks_for_too_long_a_pause_is_given_up(use: Callable[..., None]) -> None:
    with scripted(ScriptedServer(lambda _asked: (503, {"Retry-After": "3600"}, b""))) as server:
        with pytest.raises(NetworkError, match="HTTP status 503"):
            use(f"{server.origin}{PATH}")
        assert len(server.asked) == 1


def test_attempts_are_bounded(use: Callable[..., None]) -> None:
    with scripted(ScriptedServer(lambda _asked: None)) as server:
        with pytest.raises(NetworkError, match=server.origin):
            use(f"{server.origin}{PATH}", retry=Retry(attempts=3, first_wait_s=0.001))
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    "reply", [None, (401, {}, b""), (404, {}, b""), (503, {}, b"")], ids=["cut", "401", "404", "503"]
)
def test_no_error_holds_a_secret(use: Callable[..., None], reply: Reply | None) -> None:
    with scripted(ScriptedServer(lambda _asked: reply)) as server:
        for origin in (server.origin.replace("//", "//me:secret@"), f"{server.origin}/t/secret"):
            with pytest.raises(ChannelToolsError) as caught:
                use(f"{origin}{PATH}", retry=Retry(attempts=2, first_wait_s=0.001))
            assert "secret" not in f"{caught.value} {caught.value.hint}"
            assert server.origin in str(caught.value)
