# SPDX-License-Identifier: BSD-3-Clause
"""The two nginx configurations of the how-to, run by a real nginx on loopback."""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from channel_tools.channel import add_packages, channel_writer, create_channel
from channel_tools.progress import SilentProgress
from channel_tools.publish import PackageSet
from channel_tools.publish.server import open_server
from tests.integration.serving import Server, make_token, running, select_briefly
from tests.integration.test_serve_clients import auth_file, drive
from tests.unit.channel.toys import REGISTRY, make_conda
from tests.unit.publish.sets import package_file

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]

_HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
_PROXY, _STATIC = re.findall(r"```nginx\n(.*?)```", _HOW_TO.read_text(), re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Front:
    """A running nginx."""

    server: Server
    log_file: Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def nginx(work: Path, configuration: str, root: Path) -> Iterator[Front]:
    port = free_port()
    log_file = work / "nginx.log"
    lines = re.sub(r"listen \S+( ssl)?;", f"listen 127.0.0.1:{port};", configuration)
    lines = re.sub(r"^\s*ssl_certificate.*\n", "", lines, flags=re.MULTILINE)
    lines = re.sub(r"access_log \S+", f"access_log {log_file}", lines)
    lines = re.sub(r"error_log \S+", f"error_log {work / 'nginx-site.err'}", lines)
    lines = lines.replace("root /srv/channels;", f"root {root};")
    temporary = "".join(
        f"{kind}_temp_path {work / kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file, error_file = work / "nginx.conf", work / "nginx.err"
    file.write_text(
        f"daemon off;\nuser root;\npid {work / 'nginx.pid'};\nerror_log {error_file};\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{lines}}}\n"
    )
    process = subprocess.Popen(["nginx", "-c", str(file), "-e", str(error_file)], text=True)
    try:
        while process.poll() is None and not _answers(port):
            select_briefly()
        assert process.poll() is None, error_file.read_text()
        server = Server(root=root, address=f"http://127.0.0.1:{port}", process=process, log_file=log_file)
        yield Front(server=server, log_file=log_file)
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("fronted")
    folder = work / "channels"
    channel = create_channel(folder / "ours", REGISTRY)
    big = make_conda(
        work, "big", files={"share/big": hashlib.shake_256(b"big").digest(4 << 20)}, index={"depends": ["toy"]}
    )
    with channel_writer(channel) as writer:
        add_packages(writer, [make_conda(work, "toy", files={"share/toy.txt": b"toy"}), big])
    return folder


@pytest.fixture(scope="module")
def proxied(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    work = tmp_path_factory.mktemp("proxied")
    with running(root, "--proxy", "127.0.0.1", work=work) as server:
        configuration = _PROXY.replace("127.0.0.1:8734", f"127.0.0.1:{server.port}")
        with nginx(work, configuration, root) as front:
            yield front


@pytest.fixture(scope="module")
def static(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with nginx(tmp_path_factory.mktemp("static"), _STATIC, root) as front:
        yield front


INDEX, BIG = "/ours/linux-64/repodata.json", "/ours/linux-64/big-1.0-0.conda"


@pytest.mark.parametrize("form", ["path", "bearer"])
def test_clients_install_through_the_proxy(proxied: Front, tmp_path: Path, form: str) -> None:
    token = make_token(proxied.server.root, "ours")
    host = f"127.0.0.1:{proxied.server.port}"
    address = f"http://{host}/t/{token}/ours" if form == "path" else f"http://{host}/ours"
    environ = auth_file(tmp_path, "127.0.0.1", {"BearerToken": token})
    install = ("tests.integration.channel_drivers", "install", address, tmp_path / "env", "big", "sharded")
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
    assert report.uploaded == (file.key,)
    answer = server.ask(f"/fresh/{file.key}", headers={"X-API-Key": token})
    assert answer.body == file.path.read_bytes()


@pytest.mark.parametrize("how", ["sharded", "plain"])
def test_clients_install_from_static_files(static: Front, tmp_path: Path, how: str) -> None:
    address = f"{static.server.address}/ours"
    for prefix in ("first", "again"):
        done = drive(
            *("tests.integration.channel_drivers", "install", address, tmp_path / prefix, "big", how), environ={}
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "share" / "toy.txt").read_bytes() == b"toy"


def test_static_files_have_the_same_headers_as_ours_and_no_records(static: Front, root: Path) -> None:
    make_token(root, "ours")
    assert static.server.ask("/.channel_tools/tokens.json").status == 404
    assert static.server.ask("/ours/.channel_tools/channel.json").status == 404
    assert static.server.ask("/ours/linux-64/").status in {403, 404}
    kept = {path: static.server.ask(path).headers["cache-control"] for path in (INDEX, BIG)}
    assert kept == {INDEX: "public, no-cache", BIG: "public, max-age=31536000, immutable"}
    shard = next((root / "ours" / "linux-64" / "shards").iterdir())
    assert "immutable" in static.server.ask(f"/ours/linux-64/shards/{shard.name}").headers["cache-control"]
