# SPDX-License-Identifier: BSD-3-Clause
"""What a running server answers to reads: as nginx would, to those who may, and to nobody else."""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http.client
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.channel import add_set, channel_writer, create_channel
from channel_tools.page.write import add_page
from channel_tools.serve.access.tokens import default_tokens_file, revoke_token
from tests.support.packages import REGISTRY, make_conda
from tests.support.processes import TEST_TIMEOUT_S, wait_for
from tests.support.serving import Answer, Server, make_token, running

pytestmark = pytest.mark.integration

SMALL = "/ours/linux-64/small-1.0-0.conda"
BIG = "/ours/linux-64/big-1.0-0.conda"
INDEX = "/ours/linux-64/repodata.json"
SECRET = b"the secret of the house"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("reads")
    root = work / "channels"
    channel = create_channel(root / "ours", REGISTRY)
    payload = hashlib.shake_256(b"big").digest(6 << 20)
    made = [make_conda(work, "small"), make_conda(work, "big", files={"share/big": payload})]
    with channel_writer(channel) as writer:
        add_set(writer, made)
        add_page(writer)
    (work / "secret").write_bytes(SECRET)
    (root / "secret").write_bytes(SECRET)
    (root / "ours" / "linux-64" / "link.json").symlink_to(work / "secret")
    (root / "ours" / "linux-64" / "folder").symlink_to(work)
    shutil.copytree(root / "ours", root / "open", symlinks=True)
    with running(root, "--public", "open", work=work) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def bearer(server: Server) -> dict[str, str]:
    return {"Authorization": f"Bearer {make_token(server.root, 'ours')}"}


def on_disk(server: Server, path: str) -> bytes:
    return (server.root / path[1:]).read_bytes()


@pytest.mark.parametrize("path", [SMALL, BIG, INDEX, "/ours/noarch/repodata.json.zst", "/ours/channeldata.json"])
def test_a_file_comes_whole_with_its_headers(server: Server, bearer: dict[str, str], path: str) -> None:
    answer = server.ask(path, headers=bearer)
    assert answer.status == 200
    assert answer.body == on_disk(server, path)
    modified = (server.root / path[1:]).stat().st_mtime
    assert email.utils.parsedate_to_datetime(answer.headers["last-modified"]).timestamp() == int(modified)
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["accept-ranges"] == "bytes"
    kept = "private, max-age=31536000, immutable" if path.endswith(".conda") else "private, no-cache, max-age=0"
    assert answer.headers["cache-control"] == kept
    head = server.ask(path, method="HEAD", headers=bearer)
    assert (head.status, head.body) == (200, b"")
    assert without_date(head) == without_date(answer)


def test_the_page_of_a_channel_is_for_those_who_may_read_it(server: Server, bearer: dict[str, str]) -> None:
    kinds = {
        "/ours/index.html": "text/html; charset=utf-8",
        "/ours/page/page.js": "text/javascript; charset=utf-8",
        "/ours/page/page.css": "text/css; charset=utf-8",
        "/ours/page/build/linux-64/small-1.0-0.html": "text/html; charset=utf-8",
    }
    for path, kind in kinds.items():
        answer = server.ask(path, headers=bearer)
        assert (answer.status, answer.headers["content-type"]) == (200, kind)
        assert answer.body == on_disk(server, path)
        assert server.ask(path).status == 401
    token = bearer["Authorization"].removeprefix("Bearer ")
    assert server.ask(f"/t/{token}/ours/").body == on_disk(server, "/ours/index.html")
    assert server.ask("/ours/").status == 401


def without_date(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}


@pytest.mark.parametrize("validator", ["etag", "last-modified"])
def test_what_did_not_change_is_not_sent_again(server: Server, bearer: dict[str, str], validator: str) -> None:
    first = server.ask(INDEX, headers=bearer)
    asked = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}[validator]
    again = server.ask(INDEX, headers={**bearer, asked: first.headers[validator]})
    assert (again.status, again.body) == (304, b"")
    for name in ("etag", "last-modified", "cache-control"):
        assert again.headers[name] == first.headers[name]
    other = server.ask(INDEX, headers={**bearer, "If-None-Match": '"other"'})
    assert other.status == 200


def test_a_replaced_index_is_seen_at_once(server: Server, bearer: dict[str, str]) -> None:
    path = server.root / "ours" / "changing.json"
    etags = set()
    for content in (b"one", b"two", b"six"):
        new = path.with_name("new.json")
        new.write_bytes(content)
        new.replace(path)
        answer = server.ask("/ours/changing.json", headers=bearer)
        assert answer.body == content
        etags.add(answer.headers["etag"])
    assert len(etags) == 3


@pytest.mark.parametrize("path", [SMALL, BIG], ids=["from-memory", "from-disk"])
def test_ranges(server: Server, bearer: dict[str, str], path: str) -> None:
    content = on_disk(server, path)
    size = len(content)
    for asked, start, end in (("0-9", 0, 10), ("5-", 5, size), ("-7", size - 7, size), (f"9-{size * 2}", 9, size)):
        answer = server.ask(path, headers={**bearer, "Range": f"bytes={asked}"})
        assert answer.status == 206
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
        assert answer.body == content[start:end]
    beyond = server.ask(path, headers={**bearer, "Range": f"bytes={size}-"})
    assert (beyond.status, beyond.headers["content-range"], beyond.body) == (416, f"bytes */{size}", b"")


def test_an_outdated_range_gives_the_whole_file(server: Server, bearer: dict[str, str]) -> None:
    etag = server.ask(BIG, method="HEAD", headers=bearer).headers["etag"]
    right = server.ask(BIG, headers={**bearer, "Range": "bytes=0-0", "If-Range": etag})
    wrong = server.ask(BIG, headers={**bearer, "Range": "bytes=0-0", "If-Range": '"old"'})
    assert (right.status, len(right.body)) == (206, 1)
    assert (wrong.status, wrong.body) == (200, on_disk(server, BIG))


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=" + ",".join(["0-"] * 1300),
        "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 400, 2)),
        "bytes=0-100,50-150",
        "bytes=0-3, 100-199, -5",
        "bytes=" + "9" * 400 + "-",
        "bytes=0-1,x",
    ],
    ids=["all-of-it-often", "many", "overlapping", "some", "huge-number", "nonsense"],
)
def test_what_asks_for_several_ranges_gets_the_file(server: Server, bearer: dict[str, str], asked: str) -> None:
    answer = server.ask(SMALL, headers={**bearer, "Range": asked})
    assert (answer.status, answer.body) == (200, on_disk(server, SMALL))


def refusals(server: Server) -> dict[str, Answer]:
    root = server.root
    revoked = make_token(root, "ours")
    revoke_token(default_tokens_file(root), revoked[3:11], clock=time.time)
    tokens = {
        "unknown": "ct-00000000-" + "0" * 48,
        "expired": make_token(root, "ours", expires_s=time.time() - 1),
        "revoked": revoked,
        "other-channel": make_token(root, "theirs"),
        "other-label": make_token(root, "ours", labels=("testing",)),
        "cut": make_token(root, "ours")[:-1],
        "empty": "",
    }
    found = {kind: server.ask(f"/t/{token}{INDEX}") for kind, token in tokens.items()}
    found |= {
        f"{kind}-bearer": server.ask(INDEX, headers={"Authorization": f"Bearer {token}"})
        for kind, token in tokens.items()
    }
    found["none"] = server.ask(INDEX)
    found["no-such-channel"] = server.ask("/none/linux-64/repodata.json")
    found["no-such-file"] = server.ask("/ours/linux-64/none.conda")
    found["no-such-channel-with-token"] = server.ask(f"/t/{make_token(root, 'ours')}/none/linux-64/repodata.json")
    return found


def test_every_refusal_looks_the_same(server: Server) -> None:
    found = refusals(server)
    looks = {kind: (one.status, one.body, tuple(sorted(without_date(one).items()))) for kind, one in found.items()}
    assert len(set(looks.values())) == 1, looks
    assert found["none"].status == 401
    assert "www-authenticate" in found["none"].headers


def test_a_revocation_holds_for_the_next_request(server: Server) -> None:
    token = make_token(server.root, "ours")
    headers = {"Authorization": f"Bearer {token}"}
    assert server.ask(INDEX, headers=headers).status == 200
    revoke_token(default_tokens_file(server.root), token[3:11], clock=time.time)
    assert server.ask(INDEX, headers=headers).status == 401


def test_only_the_declared_label_of_a_public_channel_is_open(server: Server) -> None:
    answer = server.ask("/open/linux-64/repodata.json")
    assert (answer.status, answer.headers["cache-control"]) == (200, "public, no-cache, max-age=0")
    assert server.ask("/open/label/testing/linux-64/repodata.json").status == 401
    assert server.ask("/open/linux-64/none.conda").status == 404


TRAVERSALS = [
    "/ours/../secret", "/ours/linux-64/../../secret", "/../secret", "/ours/%2e%2e/secret", "/ours/%2e%2e%2fsecret",
    "/ours/linux-64/..%2f..%2fsecret", "/ours/linux-64/%252e%252e/%252e%252e/secret", "/ours/..\\secret",
    "/ours/..%5csecret", "/ours/linux-64/%00", "/ours/linux-64/repodata.json%00.conda", "//secret", "/./secret",
    "/ours//linux-64/repodata.json", "/ours/linux-64/link.json", "/ours/linux-64/folder/secret", "/secret",
    "/.channel_tools/tokens.json", "/ours/.channel_tools/channel.json", "/%2echannel_tools/tokens.json",
    "/ours/linux-64/%c0%ae%c0%ae/secret", "/ours/linux-64/%ff", "/ours/linux-64/\x7f", "/t/x/../../secret",
    "/ours/label/../../secret", "/ours/label/%2e%2e/linux-64/x", "http://127.0.0.1/ours/../secret", "/ours;/../secret",
    "/ours/linux-64", "/ours/page/", "/ours/page/../../secret", "/", "/ours/linux-64/folder",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
@pytest.mark.parametrize("prefix", ["", "/open"], ids=["private", "public"])
def test_no_path_leads_out(server: Server, bearer: dict[str, str], path: str, prefix: str) -> None:
    asked = path if not prefix else path.replace("/ours", prefix, 1)
    lines = f"Host: x\r\nConnection: close\r\nAuthorization: {bearer['Authorization']}\r\n"
    reply = raw(server, f"GET {asked} HTTP/1.1\r\n{lines}\r\n")
    status = int(reply.split(b" ", 2)[1])
    assert status in {400, 401, 404}, reply[:200]
    assert SECRET not in reply
    assert b"sha256" not in reply


def raw(server: Server, *pieces: str | bytes) -> bytes:
    """What comes back for these bytes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
        for piece in pieces:
            connection.sendall(piece if isinstance(piece, bytes) else piece.encode("latin-1"))
        found = b""
        while chunk := connection.recv(1 << 16):
            found += chunk
    return found


def test_pipelined_requests_are_answered_in_order(server: Server, bearer: dict[str, str]) -> None:
    lines = f"Host: x\r\nAuthorization: {bearer['Authorization']}\r\n"
    asked = "".join(f"GET {path} HTTP/1.1\r\n{lines}\r\n" for path in (INDEX, BIG, SMALL))
    found = raw(server, asked + f"GET /health HTTP/1.1\r\n{lines}Connection: close\r\n\r\n")
    rest = found
    for path in (INDEX, BIG, SMALL):
        head, _blank, rest = rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        content = on_disk(server, path)
        assert rest[: len(content)] == content
        rest = rest[len(content) :]
    assert rest.endswith(b'{"status":"ok"}')


def test_a_client_that_leaves_hurts_nobody(server: Server, bearer: dict[str, str]) -> None:
    size = len(on_disk(server, BIG))
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), timeout=TEST_TIMEOUT_S) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(
                f"GET {BIG} HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer['Authorization']}\r\n\r\n".encode()
            )
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert len(server.ask(BIG, headers=bearer).body) == size
    wait_for(lambda: not has_open(server, "big-"))


def has_open(server: Server, prefix: str) -> bool:
    """Whether a worker has a file open whose name begins so."""
    for link in (link for worker in server.workers() for link in Path(f"/proc/{worker}/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # closed in between
            if link.readlink().name.startswith(prefix):
                return True
    return False


def test_many_clients_at_once(server: Server, bearer: dict[str, str]) -> None:
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=TEST_TIMEOUT_S) for _ in range(200)]
    for connection in connections:
        connection.request("GET", BIG, headers=bearer)
    expected = hashlib.sha256(on_disk(server, BIG)).hexdigest()
    for connection in reversed(connections):
        assert hashlib.sha256(connection.getresponse().read()).hexdigest() == expected
        connection.close()


def test_the_log_has_every_request_and_no_secret(server: Server) -> None:
    token = make_token(server.root, "ours")
    assert server.ask(f"/t/{token}{INDEX}?api_key={token}").status == 200
    assert server.ask(f"/ours/linux-64/{token}", headers={"Authorization": f"Bearer {token}"}).status == 404
    assert server.statuses(token[3:11], count=2) == [200, 404]
    rows = [row for row in server.log() if row["token"] == token[3:11]]
    assert [row["path"] for row in rows] == ["/t/***" + INDEX, "/ours/linux-64/***"]
    assert token not in server.log_file.read_text()
