# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import base64
import json
import logging
import os
import resource
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from channel_tools.serve.access.guard import Gatekeeper, parse_public, tokens_of
from channel_tools.serve.access.tokens import Access, create_token, revoke_token
from channel_tools.system.errors import WithoutMeansError

WRONG = "ct-00000000-" + "0" * 48


@dataclass
class Clock:
    now_s: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Door:
    """A gatekeeper with its file of tokens and clocks."""

    file: Path
    clock: Clock = field(default_factory=Clock)
    gate: Gatekeeper = field(init=False)

    def __post_init__(self) -> None:
        self.gate = Gatekeeper(self.file, parse_public(("open", "open/beta")), clock=self.clock)

    def token(self, access: Access = "read", channels: tuple[str, ...] | None = ("ours",)) -> str:
        return create_token(
            self.file,
            name="x",
            channels=channels,
            labels=("main",),
            access=access,
            expires_s=self.clock.now_s + 60,
            clock=self.clock,
        )[0]

    def may(self, token: str | None, access: Access, channel: str, label: str = "main") -> bool:
        record = self.gate.identify(tokens_of(token, None, None))
        return self.gate.may(record, access, channel, label)


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path / "tokens.json")


def test_nothing_is_open_but_what_is_declared_public(door: Door) -> None:
    assert not door.may(None, "read", "ours")
    assert door.may(None, "read", "open")
    assert door.may(None, "read", "open", "beta")
    assert not door.may(None, "read", "open", "testing")
    assert not door.may(None, "write", "open")


def test_a_token_opens_what_it_is_for(door: Door) -> None:
    reading, writing, everywhere = door.token(), door.token("write"), door.token("read", None)
    assert door.may(reading, "read", "ours")
    assert not door.may(reading, "write", "ours")
    assert not door.may(reading, "read", "theirs")
    assert not door.may(reading, "read", "ours", "testing")
    assert door.may(writing, "read", "ours")
    assert door.may(writing, "write", "ours")
    assert not door.may(writing, "write", "theirs")
    assert door.may(everywhere, "read", "theirs")


def test_expiry_and_revocation_hold_at_once(door: Door) -> None:
    first, second = door.token(), door.token()
    assert door.may(first, "read", "ours")
    revoke_token(door.file, first[3:11], clock=door.clock)
    assert not door.may(first, "read", "ours")
    assert door.may(second, "read", "ours")
    door.clock.now_s += 60
    assert not door.may(second, "read", "ours")


def test_a_damaged_or_missing_file_opens_nothing(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    token = door.token()
    assert door.may(token, "read", "ours")
    content = door.file.read_bytes()
    door.file.write_bytes(b"{")
    with caplog.at_level(logging.ERROR):
        assert not door.may(token, "read", "ours")
    assert "every token is refused" in caplog.text
    door.file.write_bytes(content)
    assert door.may(token, "read", "ours")
    door.file.unlink()
    assert not door.may(token, "read", "ours")


def test_a_token_in_the_file_that_is_none_takes_nobody_elses_away(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    token = door.token()
    document = json.loads(door.file.read_text())
    document["tokens"].insert(0, {**document["tokens"][0], "id": "00000001", "channels": ["../x"]})
    door.file.write_text(json.dumps(document))
    assert door.may(token, "read", "ours")
    assert "entry 1 (id '00000001') is not a valid token: '../x' is not a valid channel name; use" in caplog.text


def test_a_file_that_cannot_be_opened_for_a_moment_locks_nobody_out(door: Door) -> None:
    token = door.token()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open("rb") as lowest:
        # all below are in use; with a limit of 0, threads of other tests could not wait for what they have open
        limit = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
    try:
        with pytest.raises(WithoutMeansError):
            door.may(token, "read", "ours")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert door.may(token, "read", "ours")


def test_one_of_two_credentials_is_enough(door: Door) -> None:
    token = door.token()
    credentials = basic(token, f"{token[:12]}{0:048x}")
    assert door.gate.identify(tokens_of(None, credentials, None)) is not None


def test_what_others_at_the_same_address_do_locks_nobody_out(door: Door) -> None:
    old, new = door.token(), door.token()
    revoke_token(door.file, old[3:11], clock=door.clock)
    for number in range(50):
        assert not door.may(old, "read", "ours")
        assert not door.may(f"ct-{number:08x}-{'0' * 48}", "read", "ours")
        assert not door.may("nonsense", "read", "ours")
    assert door.may(new, "read", "ours")


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


@pytest.mark.parametrize(
    ("path_token", "authorization", "api_key", "tokens"),
    [
        (None, None, None, ()),
        ("abc", b"Bearer other", b"third", ("abc",)),
        ("", None, None, ("",)),
        (None, b"Bearer abc", None, ("abc",)),
        (None, b"bearer  abc ", b"other", ("abc",)),
        (None, b"token abc", None, ("abc",)),
        (None, basic("user", "abc"), None, ("abc", "user")),
        (None, basic("abc", ""), None, ("abc",)),
        (None, basic("a", "b:c"), None, ("b:c", "a")),
        (None, b"Basic !!", None, ()),
        (None, b"Basic", None, ()),
        (None, b"Digest abc", None, ()),
        (None, b"", b"abc", ()),
        (None, None, b"abc", ("abc",)),
    ],
)
def test_credentials(
    path_token: str | None, authorization: bytes | None, api_key: bytes | None, tokens: tuple[str, ...]
) -> None:
    assert tokens_of(path_token, authorization, api_key) == tokens
