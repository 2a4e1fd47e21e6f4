# SPDX-License-Identifier: BSD-3-Clause
"""The client of our server beside servers that stall, break off, lie, redirect, or are none of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from channel_tools.channel.maintenance import Retention
from channel_tools.conda.clients import make_http_client
from channel_tools.publish.model import Comparison, PackageSet, PublishPlan
from channel_tools.publish.server.target import ServerConnection, ServerTarget, open_server, server_address
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    ConfigError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    UsageError,
    VerificationError,
)
from channel_tools.system.http.pace import Retry, Timeouts
from channel_tools.system.progress import SilentProgress
from tests.support.packages import make_conda
from tests.support.processes import TEST_TIMEOUT_S
from tests.support.scripted_server import Asked, Reply, ScriptedServer, scripted
from tests.unit.publish.sets import make_set

TOKEN = "ct-0123abcd-" + "9f" * 24


class Strange(ScriptedServer):
    @property
    def address(self) -> str:
        return f"{self.origin}/ours"

    def target(self, *, silence_s: float = TEST_TIMEOUT_S) -> ServerTarget:
        address = server_address(self.address, {"CHANNEL_TOOLS_TOKEN": TOKEN})
        client = make_http_client({}, timeouts=Timeouts(read_s=silence_s), retry=Retry(first_wait_s=0.0))
        return ServerTarget(connection=ServerConnection(address, client))


def strange(answer: Callable[[Asked], Reply | None]) -> AbstractContextManager[Strange]:
    return scripted(Strange(answer))


@pytest.fixture
def packages(tmp_path: Path) -> PackageSet:
    return make_set([make_conda(tmp_path, "toy", files={"share/x": bytes(5000)})])


def said(message: object, status: int = 200) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(message).encode()


def told(kind: str, status: int) -> Reply:
    return said({"kind": kind, "message": "what happened", "hint": "what to do"}, status)


def job(state: str, **more: object) -> dict[str, object]:
    return {"id": "0" * 32, "kind": "publish", "state": state, "label": "main", **more}


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, "cannot be reached, or stopped responding"),
        (said({}, 503), "temporarily unavailable"),
        ((200, {}, b"<html>"), "not a channel_tools server"),
        ((200, {}, b'{"upload": 5}'), "not a channel_tools server"),
        ((404, {}, b"not found"), "HTTP status 404"),
        (said({"upload": [], "link": [], "present": []}), "names other files than the request"),
        (
            said({"upload": ["linux-64/other-1-0.conda"], "link": [], "present": []}),
            "names other files than the request",
        ),
    ],
    ids=["breaks-off", "busy", "page", "nonsense", "no-such", "empty", "other-files"],
)
def test_what_a_strange_server_says_is_one_error(packages: PackageSet, reply: Reply | None, words: str) -> None:
    one_error(packages, reply, words)


@pytest.mark.parametrize("length", [100_000, 99_999_999_999], ids=["short", "endless"])
def test_a_reply_that_never_ends_is_one_error(packages: PackageSet, length: int) -> None:
    one_error(packages, (200, {"Content-Length": str(length)}, b"{}"), "stopped responding", silence_s=0.3)


def one_error(packages: PackageSet, reply: Reply | None, words: str, *, silence_s: float = TEST_TIMEOUT_S) -> None:
    with strange(lambda _asked: reply) as server:
        with pytest.raises(NetworkError, match=words) as caught:
            server.target(silence_s=silence_s).plan(packages, label="main")
        assert TOKEN not in str(caught.value)
        assert server.address in str(caught.value)
        assert len(server.asked) <= 5


def test_a_token_does_not_follow_a_redirect(packages: PackageSet) -> None:
    with strange(lambda _asked: told("x", 200)) as thief:
        elsewhere = {"Location": f"{thief.address}/x"}
        with strange(lambda _asked: (307, elsewhere, b"")) as server, pytest.raises(NetworkError, match="a redirect"):
            server.target().plan(packages, label="main")
        assert thief.asked == []


def test_a_server_that_stalls_is_given_up(packages: PackageSet) -> None:
    waiting = threading.Event()

    def stall(_asked: Asked) -> Reply:
        waiting.wait(TEST_TIMEOUT_S)
        return said({})

    with strange(stall) as server:
        with pytest.raises(NetworkError, match="stopped responding"):
            server.target(silence_s=0.2).plan(packages, label="main")
        waiting.set()


def test_what_passes_is_tried_again(packages: PackageSet) -> None:
    replies = [None, said({}, 502), said({"upload": [str(packages.files[0].key)], "link": [], "present": []})]
    with strange(lambda _asked: replies.pop(0)) as server:
        assert server.target().plan(packages, label="main").upload == packages.files
        assert [asked.headers["Authorization"] for asked in server.asked] == [f"Bearer {TOKEN}"] * 3


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("ChannelError", 409, ChannelError),
        ("IntegrityError", 422, IntegrityError),
        ("VerificationError", 422, VerificationError),
        ("DiskFullError", 507, DiskFullError),
        ("ConfigError", 400, ConfigError),
        ("SomethingNewError", 418, ChannelToolsError),
        ("Path", 400, ChannelToolsError),
    ],
)
def test_errors_of_the_server_come_as_what_they_are(
    packages: PackageSet, kind: str, status: int, expected: type[ChannelToolsError]
) -> None:
    with strange(lambda _asked: told(kind, status)) as server, pytest.raises(ChannelToolsError) as caught:
        server.target().plan(packages, label="main")
    assert type(caught.value) is expected
    assert str(caught.value) == f"{server.address}: what happened"
    assert caught.value.hint == "what to do"


@pytest.mark.parametrize(("status", "words"), [(401, "the token is not valid"), (403, "may only read there")])
def test_refusals_say_what_to_do(packages: PackageSet, status: int, words: str) -> None:
    with strange(lambda _asked: told("UsageError", status)) as server, pytest.raises(UsageError, match=words) as caught:
        server.target().plan(packages, label="main")
    assert caught.value.hint
    assert TOKEN not in str(caught.value)


def test_a_file_goes_on_from_where_the_server_has_it(packages: PackageSet) -> None:
    file = packages.files[0]
    content = file.path.read_bytes()
    stored = bytearray()
    cuts = [1000, 300, len(content)]

    def answer(asked: Asked) -> Reply | None:
        if asked.path.endswith("/sets"):
            return said(job("open", missing={str(file.key): len(stored)}))
        if asked.method == "PUT":
            start = int(asked.headers.get("Content-Range", "bytes 0-").split()[1].partition("-")[0])
            assert start == len(stored)
            stored.extend(asked.body[: cuts.pop(0)])
            return None if len(stored) < len(content) else said({"received": len(stored), "complete": True}, 201)
        if asked.path.endswith("/commit"):
            return said(job("waiting"), 202)
        if "/jobs/" in asked.path:
            return said(job("done", report={"uploaded": [str(file.key)], "linked": []}))
        return said({"received": len(stored), "complete": len(stored) == len(content)})

    with strange(answer) as server:
        plan = server.target()
        report = plan.publish(_plan(packages), progress=SilentProgress())
    assert report.uploaded == (str(file.key),)
    assert bytes(stored) == content


def _plan(packages: PackageSet) -> PublishPlan:
    comparison = Comparison(upload=tuple(packages.by_name()), link=(), present=())
    return PublishPlan(packages=packages, label="main", comparison=comparison)


@pytest.mark.parametrize("how", ["forgets", "claims-less", "never-ends", "stops-again-and-again", "says-nothing"])
def test_a_server_that_gets_nowhere_is_given_up(packages: PackageSet, how: str) -> None:
    file = packages.files[0]

    def answer(asked: Asked) -> Reply | None:
        if asked.path.endswith("/sets"):
            missing = {} if how in {"stops-again-and-again", "says-nothing"} else {str(file.key): 0}
            return said(job("open", missing=missing))
        if asked.method == "PUT":
            return None if how == "never-ends" else said({"received": 0, "complete": False})
        if asked.path.endswith("/commit"):
            return said(job("open" if how == "stops-again-and-again" else "done"), 202)
        return said({"received": 0, "complete": False})

    with strange(answer) as server, pytest.raises(NetworkError):
        server.target().publish(_plan(packages), progress=SilentProgress())
    assert len(server.asked) < 60


def test_a_file_that_changed_here_is_said_to_be_ours(packages: PackageSet) -> None:
    file = packages.files[0]

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/sets"):
            return said(job("open", missing={str(file.key): 0}))
        return told("IntegrityError", 422)

    file.path.write_bytes(bytes(file.size_bytes))
    with strange(answer) as server, pytest.raises(IntegrityError, match="the local channel's index says"):
        server.target().publish(_plan(packages), progress=SilentProgress())


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("before", ["listed", "hidden"])
def test_a_server_that_knows_no_removal_removes_nothing_and_is_no_success(before: str, *, dry_run: bool) -> None:
    """It reads the fields that it knows, by which nothing is due, and says that all is done."""
    key = "linux-64/toy-1.0-0.conda"
    package: dict[str, object] = {"subdir": "linux-64", "file_name": "toy-1.0-0.conda"}
    package |= {"size_bytes": 1, "sha256": "0" * 64}
    package |= {"name": "toy", "version": "1.0", "build": "0", "build_number": 0, "depends": []}
    package |= {"hidden": None if before == "listed" else "retired", "yanked": None}

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/packages"):
            return said({"packages": [package]})
        request = json.loads(asked.body)
        assert (request["removed"], request["dry_run"]) == ([key], dry_run)
        assert min(request["keep"], request["older_than_s"]) > 1e9
        return said(job("done", kind="retain", report={"uploaded": [], "linked": []}))

    rule = Retention(removed=frozenset({key}))
    with strange(answer) as server:
        if before == "hidden":
            assert server.target().retain(rule, label="main", dry_run=dry_run).retire == ()
            return
        with pytest.raises(ChannelError, match="did not remove linux-64/toy-1") as caught:
            server.target().retain(rule, label="main", dry_run=dry_run)
    assert "upgrade it" in str(caught.value.hint)


@pytest.mark.parametrize(
    "address", ["http://host", "http://host/", "http://host/a/b", "http://host/a?b=c", "http:///x", "http://host/t/x"]
)
def test_an_address_that_is_no_channel_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected https://HOST/CHANNEL"):
        open_server(address, {"HOME": "/nowhere"})


def test_where_tokens_come_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    kept = tmp_path / "credentials.json"
    kept.write_text(
        json.dumps(
            {
                "host.example": {"BearerToken": "first"},
                "*.example": {"BasicHTTP": {"username": "me", "password": "second"}},
                "*.deep.example": {"CondaToken": "third"},
                "odd": {"S3Credentials": {}},
            }
        )
    )
    rattler = {"RATTLER_AUTH_FILE": str(kept)}
    cases: list[tuple[str, dict[str, str], str | None]] = [
        ("https://host.example/c", {"HOME": str(tmp_path)}, None),
        ("https://host.example/c", {"CHANNEL_TOOLS_TOKEN": TOKEN, **rattler}, f"Bearer {TOKEN}"),
        ("https://host.example/c", {"CHANNEL_TOOLS_TOKEN_FILE": str(file)}, f"Bearer {TOKEN}"),
        ("https://host.example/t/inpath/c", rattler, "Bearer inpath"),
        ("https://me:there@host.example/c", rattler, "Basic bWU6dGhlcmU="),
        ("https://host.example:8443/c", rattler, "Bearer first"),
        ("https://other.example/c", rattler, "Basic bWU6c2Vjb25k"),
        ("https://very.deep.example/c", rattler, "Bearer third"),
        ("https://elsewhere/c", rattler, None),
        ("https://odd/c", rattler, None),
    ]
    for address, environ, expected in cases:
        found = server_address(address, environ)
        assert found.authorization == expected, address
        assert "t/inpath" not in found.url
        assert "there" not in found.url
        assert expected is None or expected not in repr(found)


@pytest.mark.parametrize("content", [None, "", "two words", "\x80"], ids=["missing", "empty", "words", "binary"])
def test_a_token_file_that_has_none_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match="CHANNEL_TOOLS_TOKEN_FILE"):
        server_address("https://host/c", {"CHANNEL_TOOLS_TOKEN_FILE": str(file)})


@pytest.mark.parametrize("content", [None, "{", "[]"], ids=["missing", "damaged", "list"])
def test_a_file_of_credentials_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "credentials.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=r"credentials\.json"):
        server_address("https://host/c", {"RATTLER_AUTH_FILE": str(file)})
