# SPDX-License-Identifier: BSD-3-Clause
"""Requests that are no requests, and uploads that are not what they say, at a running server."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.channel import create_channel, open_channel, verify_channel
from channel_tools.publish.model import PackageFile, PackageSet
from channel_tools.publish.server.protocol import API, JobResponse, YankRequest, encode, set_request
from channel_tools.publish.server.target import ServerTarget, open_server
from channel_tools.system.errors import DiskFullError
from channel_tools.system.progress import SilentProgress
from tests.support.packages import REGISTRY, make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.programs import program
from tests.support.serving import Server, make_token, running, select_briefly
from tests.unit.publish.sets import package_file

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("attacks")
    (work / "channels").mkdir()
    with running(work / "channels", work=work) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return make_token(server.root, labels=None, access="write")


def say(server: Server, *pieces: bytes, leaves: bool = False) -> bytes:
    """What the server answers to these bytes, until it closes the connection; nothing more comes if it ``leaves``."""
    found = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
            if leaves:
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                found += chunk
        except OSError as err:
            if err.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN}:  # how a refusal may end
                raise
    return found


HOST = b"Host: x\r\n"
SMUGGLED = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMING = {
    "two-lengths": b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 38\r\n\r\n" + SMUGGLED,
    "lengths-in-a-list": b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length: 0, 38\r\n\r\n" + SMUGGLED,
    "length-and-chunks": b"POST /health HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "chunks-misspelt": b"POST /health HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunks-not-last": b"POST /health HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"
    + SMUGGLED,
    "negative-length": b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n" + SMUGGLED,
    "plus-length": b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "folded-header": b"POST /health HTTP/1.1\r\n" + HOST + b"X: y\r\n Content-Length: 38\r\n\r\n" + SMUGGLED,
    "space-before-colon": b"POST /health HTTP/1.1\r\n" + HOST + b"Content-Length : 0\r\n\r\n" + SMUGGLED,
    "nul-in-header": b"POST /health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n" + SMUGGLED,
    "bad-chunk-size": b"POST /health HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + SMUGGLED,
    "no-http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "other-version": b"GET /health HTTP/9.9\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize("kind", FRAMING)
def test_a_request_with_two_readings_is_refused(server: Server, kind: str) -> None:
    found = say(server, FRAMING[kind])
    assert b'{"status":"ok"}' not in found, found
    assert found == b"" or found.startswith((b"HTTP/1.1 400", b"HTTP/1.1 405")), found
    assert server.ask("/health").status == 200


@pytest.mark.parametrize("size", [20_000, 2_000_000])
def test_long_headers_are_refused(server: Server, size: int) -> None:
    found = say(server, b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"y" * size + b"\r\n\r\n")
    assert found == b"" or found.startswith(b"HTTP/1.1 431")
    assert server.ask("/health").status == 200
    found = say(server, b"GET /" + b"y" * size + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    assert found == b"" or found.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert server.ask("/health").status == 200


@pytest.mark.parametrize("path", ["/health/", "/ours/", "/api/v1/channels/ours/plan/", "//evil.example/x"])
def test_no_answer_leads_elsewhere(server: Server, path: str) -> None:
    for method in ("GET", "POST"):
        answer = server.ask(path, method=method, headers={"Host": "evil.example"}, body=b"{}")
        assert answer.status in {400, 401, 404, 405}
        assert "location" not in answer.headers


def test_errors_name_no_folder_of_the_server(server: Server, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    for method, path in (
        ("PUT", "/none/linux-64/a-1-0.conda"),
        ("POST", "/api/channels/none/upload/a-1-0.conda"),
        ("GET", f"{API}/none/labels/main/packages"),
        ("POST", f"{API}/none/yank"),
    ):
        answer = server.ask(path, method=method, headers=headers, body=b"{}")
        assert answer.status in {400, 409}
        assert str(server.root).encode() not in answer.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_change_nothing(server: Server, method: str) -> None:
    answer = server.ask("/ours/linux-64/repodata.json", method=method, body=b"x")
    assert answer.status in {400, 401, 404, 405, 409}


def target(server: Server, channel: str, token: str) -> ServerTarget:
    return open_server(f"{server.address}/{channel}", {"CHANNEL_TOOLS_TOKEN": token})


def one_package(folder: Path, name: str, size_bytes: int = 1000) -> PackageFile:
    payload = hashlib.shake_256(name.encode()).digest(size_bytes)
    return package_file(make_conda(folder, name, files={f"share/{name}": payload}))


def opened(place: ServerTarget, file: PackageFile, server: Server, token: str) -> str:
    """The address to which a file of a new set is to be sent."""
    packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
    headers = {"Authorization": f"Bearer {token}"}
    address = f"{API}/{place.connection.channel}/sets"
    body = encode(set_request(packages, "main"))
    job = json.loads(server.ask(address, method="POST", body=body, headers=headers).body)
    return f"{address}/{job['id']}/files/{file.key}"


@pytest.mark.parametrize("lie", ["shorter", "longer", "other-bytes", "longer-range", "range-of-another-file"])
def test_a_sender_that_lies_about_its_file_gets_nothing_in(
    server: Server, token: str, tmp_path: Path, lie: str
) -> None:
    file = one_package(tmp_path, "liar", 50_000)
    place = target(server, f"lies-{lie}", token)
    address = opened(place, file, server, token)
    content, size = file.path.read_bytes(), file.size_bytes
    headers = {"Authorization": f"Bearer {token}"}
    body, more, statuses = {
        "shorter": (content[:-1], {}, {200}),
        "longer": (content + b"x", {}, {422}),
        "other-bytes": (bytes(size), {}, {422}),
        "longer-range": (content, {"Content-Range": f"bytes 0-{size - 100}/{size}"}, {422}),
        "range-of-another-file": (content, {"Content-Range": f"bytes 0-{size}/{size + 1}"}, {400}),
    }[lie]
    answer = server.ask(address, method="PUT", body=body, headers={**headers, **more})
    assert answer.status in statuses
    commit = server.ask(address.partition("/files/")[0] + "/commit", method="POST", headers=headers)
    assert commit.status == 202
    ended = place._ended(JobResponse(**json.loads(commit.body)), SilentProgress(), "it")
    assert ended.error is not None
    assert "1 file of the set is missing" in ended.error.message
    assert not (server.root / f"lies-{lie}").exists()


def test_a_connection_that_ends_early_leaves_a_part_to_go_on_from(server: Server, token: str, tmp_path: Path) -> None:
    file = one_package(tmp_path, "cut", 400_000)
    place = target(server, "cut", token)
    address = opened(place, file, server, token)
    lines = f"Host: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {file.size_bytes}\r\n"
    head = f"PUT {address} HTTP/1.1\r\n{lines}\r\n"
    say(server, head.encode(), file.path.read_bytes()[:200_000], leaves=True)
    assert server.statuses(file.file_name, "PUT", count=1) == [499]
    headers = {"Authorization": f"Bearer {token}"}
    assert json.loads(server.ask(address, headers=headers).body) == {
        "received": 200_000,
        "complete": False,
        "schema": 1,
    }
    packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
    report = place.publish(place.plan(packages, label="main"), progress=SilentProgress())
    assert report.uploaded == (str(file.key),)


def test_publishers_at_once_all_come_through_in_turn(server: Server, token: str, tmp_path: Path) -> None:
    files = [one_package(tmp_path, f"many{number}") for number in range(6)]
    failures: list[BaseException] = []

    def publish(file: PackageFile) -> None:
        place = target(server, "many", token)
        packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
        try:
            place.publish(place.plan(packages, label="main"), progress=SilentProgress())
        except BaseException as err:  # noqa: BLE001 - told below
            failures.append(err)

    threads = [threading.Thread(target=publish, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    listed = json.loads((server.root / "many" / "linux-64" / "repodata.json").read_bytes())["packages.conda"]
    assert sorted(listed) == sorted(file.file_name for file in files)
    assert verify_channel(open_channel(server.root / "many")) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        [program("mount"), "-t", "tmpfs", "-o", "size=48m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run([program("umount"), "-l", folder], check=True)


def test_a_full_disk_is_told_and_the_upload_goes_on_afterwards(small_disk: Path, tmp_path: Path) -> None:
    file = one_package(tmp_path, "fat", 6 << 20)
    packages = PackageSet(name="fat", files=(file,), foundation=REGISTRY)
    token = make_token(small_disk, labels=None, access="write")
    ballast = small_disk / "ballast"
    with running(small_disk, work=tmp_path) as server:
        place = target(server, "ours", token)
        address = opened(place, file, server, token)
        size = file.size_bytes
        headers = {"Authorization": f"Bearer {token}", "Content-Range": f"bytes 0-99999/{size}"}
        content = file.path.read_bytes()
        assert server.ask(address, method="PUT", body=content[:100_000], headers=headers).status == 200
        plan = place.plan(packages, label="main")
        fill(ballast, leave=size + (17 << 20))  # enough when the upload begins; then another takes it
        rest = {**headers, "Content-Range": f"bytes 100000-{size - 1}/{size}"}
        status = send_while_filling(server, address, rest, content[100_000:], ballast)
        assert status == 507
        with pytest.raises(DiskFullError, match="left"):
            place.publish(plan, progress=SilentProgress())
        assert server.ask("/health").status == 200
        ballast.unlink()
        assert place.publish(plan, progress=SilentProgress()).uploaded == (str(file.key),)
        assert verify_channel(open_channel(small_disk / "ours")) == []


def fill(path: Path, *, leave: int) -> None:
    """Write until no more than ``leave`` bytes are free, or the disk is full, to which the server adds its own."""
    status = os.statvfs(path.parent)
    with path.open("ab", buffering=0) as stream:
        try:
            stream.write(bytes(max(0, status.f_bavail * status.f_frsize - leave)))
        except OSError as err:
            if err.errno != errno.ENOSPC:
                raise


def send_while_filling(server: Server, address: str, headers: dict[str, str], body: bytes, ballast: Path) -> int:
    """Send the first half, fill the disk, send the rest; the status of the answer."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"PUT {address} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
        connection.sendall(head.encode() + body[: 2 << 20])
        part = next(path for path in server.root.glob("**/parts/*/*.conda"))
        while part.stat().st_size < (1 << 20):
            os.sched_yield()
        fill(ballast, leave=0)
        connection.sendall(body[2 << 20 :])
        return int(connection.recv(1 << 16).split(b" ", 2)[1])


@pytest.mark.parametrize("leave_kib", [0, 8, 16, 48, 72, 512])
def test_without_space_left_requests_fail_and_the_server_goes_on(
    small_disk: Path, tmp_path: Path, leave_kib: int
) -> None:
    sent, waiting, single = (one_package(tmp_path, name) for name in ("sent", "waiting", "single"))
    token = make_token(small_disk, labels=None, access="write")
    headers = {"Authorization": f"Bearer {token}"}
    with running(small_disk, work=tmp_path, quiet=False) as server:
        place = target(server, "ours", token)
        other = target(server, "others", token)
        for first in (one_package(tmp_path, "first"), waiting):
            packages = PackageSet(name=first.file_name, files=(first,), foundation=REGISTRY)
            channel = other if first is waiting else place
            channel.publish(channel.plan(packages, label="main"), progress=SilentProgress())
        address = opened(place, sent, server, token)
        assert server.ask(address, method="PUT", body=sent.path.read_bytes(), headers=headers).status == 201
        fill(small_disk / "ballast", leave=leave_kib << 10)
        body, one_set = sent.path.read_bytes(), address.partition("/files/")[0]
        yank = encode(YankRequest(label="main", keys=("linux-64/first-1-0.conda",), reason="no space"))
        new_set = encode(set_request(PackageSet(name="x", files=(single,), foundation=REGISTRY), "main"))
        requests: dict[str, tuple[str, bytes | None]] = {
            f"{API}/ours/sets": ("POST", new_set),
            address + "x": ("PUT", body),
            address: ("PUT", body),
            one_set + "/commit": ("POST", b""),
            f"{API}/ours/yank": ("POST", yank),
            f"/ours/linux-64/{single.file_name}": ("PUT", single.path.read_bytes()),
            f"/api/channels/others/upload/{single.file_name}": ("POST", single.path.read_bytes()),
        }
        for path, (method, content) in requests.items():
            status = server.ask(path, method=method, body=content, headers=headers).status
            assert status in {200, 201, 202, 400, 409, 507}, (path, status)
        answer = server.ask(f"{one_set.replace('/sets/', '/jobs/')}?wait=20", headers=headers)
        assert json.loads(answer.body)["state"] in {"open", "done", "failed"}
        assert server.ask("/ours/linux-64/repodata.json", headers=headers).status == 200
        assert server.ask("/others/linux-64/repodata.json", headers=headers).status == 200
        (small_disk / "ballast").unlink()
        for file, channel in ((sent, place), (single, other)):
            packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
            channel.publish(channel.plan(packages, label="main"), progress=SilentProgress())
        assert [verify_channel(open_channel(small_disk / name)) for name in ("ours", "others")] == [[], []]
        text = server.errors_said()
        assert "Traceback" not in text, text
        assert "defect" not in text, text


def test_a_damaged_job_ends_nothing_and_is_put_aside(tmp_path: Path) -> None:
    root = tmp_path / "channels"
    jobs = root / ".channel_tools" / "uploads" / "ours"
    for number, content in enumerate((b"", b"{}", b"[]", b'{"kind": "publish", "body": {}}', b"\xff")):
        folder = jobs / f"{number:032x}"
        folder.mkdir(parents=True)
        (folder / "request.json").write_bytes(content)
    token = make_token(root, labels=None, access="write")
    headers = {"Authorization": f"Bearer {token}"}
    with running(root, work=tmp_path, quiet=False) as server:
        asked = server.ask(f"{API}/ours/jobs/{0:032x}", headers=headers)
        assert asked.status == 404
        file = one_package(tmp_path, "whole")
        place = target(server, "ours", token)
        packages = PackageSet(name=file.file_name, files=(file,), foundation=REGISTRY)
        assert place.publish(place.plan(packages, label="main"), progress=SilentProgress()).uploaded
        while len(aside := sorted(path.name for path in jobs.glob(".damaged-*"))) < 5:
            assert server.process.poll() is None
            select_briefly()
        assert [name.rpartition("-")[0] for name in aside] == [f".damaged-{number:032x}" for number in range(5)]
        assert server.errors_said().count("request.json is damaged") == 5


def test_a_single_upload_that_was_killed_leaves_nothing_for_long(tmp_path: Path) -> None:
    root = tmp_path / "channels"
    create_channel(root / "ours", REGISTRY)
    token = make_token(root, labels=None, access="write")
    arriving = root / ".channel_tools" / "uploads" / "ours" / "arriving"
    begin = f"PUT /ours/linux-64/x-1-0.conda HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    with running(root, work=tmp_path, quiet=False) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
            connection.sendall(f"{begin}Content-Length: 4000000\r\n\r\n".encode() + bytes(2_000_000))
            while sum(path.stat().st_size for path in arriving.glob("*")) < 1 << 20:
                select_briefly()
            os.kill(server.workers()[0], signal.SIGKILL)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        server.answers_again()
    (left,) = arriving.iterdir()
    os.utime(left, (0, 0))  # long ago
    with running(root, work=tmp_path, quiet=False) as server:
        while left.exists():
            assert server.process.poll() is None
            select_briefly()


def test_single_uploads_leave_the_reserve(small_disk: Path, tmp_path: Path) -> None:
    create_channel(small_disk / "ours", REGISTRY)
    token = make_token(small_disk, labels=None, access="write")
    headers = {"Authorization": f"Bearer {token}"}
    file = one_package(tmp_path, "single", 4 << 20)
    with running(small_disk, work=tmp_path) as server:
        fill(small_disk / "ballast", leave=18 << 20)
        path = f"/ours/linux-64/{file.file_name}"
        assert server.ask(path, method="PUT", body=file.path.read_bytes(), headers=headers).status == 507
        chunked = (
            f"PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        content = file.path.read_bytes()
        found = say(server, chunked.encode(), b"%x\r\n" % len(content), content, b"\r\n0\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 507")
        assert list((small_disk / ".channel_tools").glob("uploads/ours/arriving/*")) == []
        status = os.statvfs(small_disk)
        assert status.f_bavail * status.f_frsize > 16 << 20
