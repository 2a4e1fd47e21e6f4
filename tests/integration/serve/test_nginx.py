# SPDX-License-Identifier: BSD-3-Clause
"""The two nginx configurations of the how-to, run by a real nginx on loopback."""

from __future__ import annotations

import hashlib
import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel
from channel_tools.publish.model import PackageSet
from channel_tools.publish.server.target import open_server
from channel_tools.system.progress import SilentProgress
from tests.integration.serve.test_clients import auth_file, drive
from tests.support.packages import REGISTRY, make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.serving import Front, make_token, nginx_alone, nginx_before, running
from tests.unit.publish.sets import package_file

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("fronted")
    folder = work / "channels"
    channel = create_channel(folder / "ours", REGISTRY)
    big = make_conda(
        work, "big", files={"share/big": hashlib.shake_256(b"big").digest(4 << 20)}, index={"depends": ["toy"]}
    )
    with channel_writer(channel) as writer:
        add_set(writer, [make_conda(work, "toy", files={"share/toy.txt": b"toy"}), big])
    return folder


@pytest.fixture(scope="module")
def proxied(root: Path, nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    work = tmp_path_factory.mktemp("proxied")
    with running(root, "--proxy", "127.0.0.1", work=work) as server, nginx_before(server, nginx, work) as front:
        yield front


@pytest.fixture(scope="module")
def static(root: Path, nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with nginx_alone(root, nginx, tmp_path_factory.mktemp("static")) as front:
        yield front


INDEX, BIG = "/ours/linux-64/repodata.json", "/ours/linux-64/big-1.0-0.conda"


@pytest.mark.parametrize("form", ["path", "bearer"])
def test_clients_install_through_the_proxy(proxied: Front, tmp_path: Path, form: str) -> None:
    token = make_token(proxied.server.root, "ours")
    host = f"127.0.0.1:{proxied.server.port}"
    address = f"http://{host}/t/{token}/ours" if form == "path" else f"http://{host}/ours"
    environ = auth_file(tmp_path, "127.0.0.1", {"BearerToken": token})
    install = ("tests.integration.conda.clients", "install", address, tmp_path / "env", "big", "sharded")
    done = drive(*install, environ=environ if form == "bearer" else {})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "env" / "share" / "toy.txt").read_bytes() == b"toy"
    assert token not in proxied.log_file.read_text()
    if form == "path":
        assert "/t/***/ours/linux-64/big-1.0-0.conda" in proxied.log_file.read_text()


def test_validators_ranges_and_refusals_come_through_the_proxy(proxied: Front) -> None:
    server = proxied.server
    headers = {"Authorization": f"Bearer {make_token(server.root, 'ours')}"}
    first = server.ask(INDEX, headers=headers)
    assert first.status == 200
    assert server.ask(INDEX, headers={**headers, "If-None-Match": first.headers["etag"]}).status == 304
    part = server.ask(BIG, headers={**headers, "Range": "bytes=1000000-1000009"})
    assert (part.status, len(part.body)) == (206, 10)
    assert server.ask(INDEX).status == 401
    assert server.ask("/.channel_tools/tokens.json", headers=headers).status == 404
    assert server.ask("/ours/../.channel_tools/tokens.json", headers=headers).status in {400, 404}


def test_sets_are_published_through_the_proxy(proxied: Front, tmp_path: Path) -> None:
    server = proxied.server
    token = make_token(server.root, "fresh", access="write")
    file = package_file(make_conda(tmp_path, "wide", files={"share/wide": bytes(range(256)) * 20_000}))
    target = open_server(f"{server.address}/fresh", {"CHANNEL_TOOLS_TOKEN": token})
    packages = PackageSet(name="wide", files=(file,), foundation=REGISTRY)
    report = target.publish(target.plan(packages, label="main"), progress=SilentProgress())
    assert report.uploaded == (str(file.key),)
    answer = server.ask(f"/fresh/{file.key}", headers={"X-API-Key": token})
    assert answer.body == file.path.read_bytes()


def test_one_address_has_its_share_of_the_proxys_connections(proxied: Front) -> None:
    headers = {"Authorization": f"Bearer {make_token(proxied.server.root, 'ours')}"}
    lines = f"GET {BIG} HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(64):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", proxied.server.port), timeout=TEST_TIMEOUT_S)
            )
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(lines)
            assert connection.recv(12) == b"HTTP/1.1 200"  # and the rest of 4 MiB waits
        assert proxied.server.ask("/health").status == 503
        other = http.client.HTTPConnection(
            "127.0.0.1", proxied.server.port, timeout=TEST_TIMEOUT_S, source_address=("127.0.0.2", 0)
        )
        other.request("GET", "/health")
        assert other.getresponse().status == 200
        other.close()


@pytest.mark.parametrize("how", ["sharded", "plain"])
def test_clients_install_from_static_files(static: Front, tmp_path: Path, how: str) -> None:
    address = f"{static.server.address}/ours"
    for prefix in ("first", "again"):
        done = drive(
            *("tests.integration.conda.clients", "install", address, tmp_path / prefix, "big", how), environ={}
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "share" / "toy.txt").read_bytes() == b"toy"


def test_static_files_have_the_same_headers_as_ours_and_no_records(static: Front, root: Path) -> None:
    make_token(root, "ours")
    assert static.server.ask("/.channel_tools/tokens.json").status == 404
    assert static.server.ask("/ours/.channel_tools/channel.json").status == 404
    assert static.server.ask("/ours/linux-64/").status in {403, 404}
    kept = {path: static.server.ask(path).headers["cache-control"] for path in (INDEX, BIG)}
    assert kept == {INDEX: "public, no-cache, max-age=0", BIG: "public, max-age=31536000, immutable"}
    shard = next((root / "ours" / "linux-64" / "shards").iterdir())
    assert "immutable" in static.server.ask(f"/ours/linux-64/shards/{shard.name}").headers["cache-control"]
