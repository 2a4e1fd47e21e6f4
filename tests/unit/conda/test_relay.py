# SPDX-License-Identifier: BSD-3-Clause
"""What servers are told when rattler reads a channel: the token where it belongs, and no secret anywhere else."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
import rattler

from channel_tools.conda.clients import make_client, make_http_client
from channel_tools.conda.relay import start_relay
from channel_tools.conda.solving import make_gateway, solve_specs
from channel_tools.system.errors import NetworkError
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "made-up-secret"  # noqa: S105 - no real one
REPODATA = json.dumps(
    {
        "info": {"subdir": "noarch"},
        "packages": {},
        "packages.conda": {
            "a-1-0.conda": {
                "name": "a", "version": "1", "build": "0", "build_number": 0, "depends": [], "subdir": "noarch",
                "sha256": "0" * 64, "size": 1,
            }
        },
    }
).encode()  # fmt: skip


def channel(asked: Asked) -> Reply:
    """A channel with one package, at any address."""
    if asked.path.endswith("/noarch/repodata.json"):
        return 200, {"ETag": '"1"'}, REPODATA
    return 404, {}, b""


def solved(address: str, cache: Path) -> list[rattler.RepoDataRecord]:
    (plain,), client = make_client([address])
    gateway = make_gateway(cache, client)
    return asyncio.run(solve_specs(["a"], [plain], subdir="linux-64", gateway=gateway, virtual_packages=[]))


def told(server: ScriptedServer) -> str:
    return json.dumps([[asked.path, dict(asked.headers)] for asked in server.asked])


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RATTLER_AUTH_FILE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home" / ".rattler").mkdir(parents=True)
    return tmp_path / "home"


@pytest.mark.parametrize("where", ["address", "stored"])
def test_a_token_is_not_told_to_the_host_of_a_redirect(tmp_path: Path, home: Path, where: str) -> None:
    with scripted(ScriptedServer(channel)) as other:

        def redirecting(asked: Asked) -> Reply:
            path = asked.path.replace(f"/t/{SECRET}", "")
            return 302, {"Location": f"{other.origin}{path}"}, b""

        with scripted(ScriptedServer(redirecting)) as server:
            if where == "stored":
                stored = {"127.0.0.1": {"CondaToken": SECRET}}
                (home / ".rattler" / "credentials.json").write_text(json.dumps(stored))
            token = f"/t/{SECRET}" if where == "address" else ""
            (record,) = solved(f"{server.origin}{token}/lab", tmp_path / "cache")
            assert record.url == f"{server.origin}/lab/noarch/a-1-0.conda"
            assert str(record.channel).rstrip("/") == f"{server.origin}/lab"
            assert all(f"/t/{SECRET}/lab/" in asked.path for asked in server.asked)
            assert other.asked
            assert SECRET not in told(other)
            assert "Referer" not in told(other)


@pytest.mark.parametrize("where", ["netrc", "BearerToken", "CondaToken", "default"])
def test_what_is_stored_is_not_sent_to_plain_http(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Seen by a proxy, as anybody on the way would."""
    if where in {"netrc", "default"}:
        machine = "default" if where == "default" else "machine lab.invalid"
        (home / ".netrc").write_text(f"{machine} login me password {SECRET}\n")
        (home / ".netrc").chmod(0o600)
    else:
        (home / ".rattler" / "credentials.json").write_text(json.dumps({"lab.invalid": {where: SECRET}}))
    with scripted(ScriptedServer(channel)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY"):  # rattler looks at the second one first
            monkeypatch.setenv(name, proxy.origin)
        assert len(solved("http://lab.invalid/lab", tmp_path / "cache")) == 1
        assert proxy.asked
        assert "uthorization" not in told(proxy)
        assert SECRET not in told(proxy)


def test_a_password_that_is_given_in_the_address_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(ScriptedServer(channel)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY"):  # rattler looks at the second one first
            monkeypatch.setenv(name, proxy.origin)
        assert len(solved("http://me:word@lab.invalid/lab", tmp_path / "cache")) == 1
        assert all(asked.headers.get("Authorization") == "Basic bWU6d29yZA==" for asked in proxy.asked)


def test_errors_name_the_channel_and_not_the_relay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with scripted(ScriptedServer(lambda _asked: (401, {}, b""))) as server:
        with pytest.raises(NetworkError, match=re.escape(f"{server.origin}/lab")) as caught:
            solved(f"{server.origin}/t/{SECRET}/lab", tmp_path / "cache")
        assert "401" in str(caught.value)
        assert "relay" not in str(caught.value)
        assert SECRET not in f"{caught.value} {caplog.text}"


def test_nobody_else_gets_an_answer(tmp_path: Path) -> None:
    with scripted(ScriptedServer(channel)) as server:
        plain = f"{server.origin}/lab/"
        relay = start_relay(make_http_client({"HOME": str(tmp_path)}), {plain: f"{server.origin}/t/{SECRET}/lab/"})
        origin = relay.origin.partition("/relay-")[0]
        for address in (
            origin,
            f"{origin}/relay-{'x' * 43}/{plain.replace('://', '/')}noarch/repodata.json",
            relay.address_of(f"{server.origin}/elsewhere/"),
            relay.address_of(f"{server.origin}/lab2/"),
        ):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address)  # noqa: S310 - http
        assert not server.asked
        address = relay.address_of(plain)
        with urllib.request.urlopen(f"{address}noarch/repodata.json") as answer:  # noqa: S310 - http
            assert answer.read() == REPODATA
        assert [asked.path for asked in server.asked] == [f"/t/{SECRET}/lab/noarch/repodata.json"]
