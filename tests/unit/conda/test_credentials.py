# SPDX-License-Identifier: BSD-3-Clause
"""What is sent to which host, and that a damaged file of credentials is named but not quoted."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from channel_tools.conda.clients import ChannelCredentials, stored_authorization
from channel_tools.system.errors import ConfigError


def asked(kept: dict[str, object], url: str, tmp_path: Path) -> tuple[str, str | None]:
    (tmp_path / "auth.json").write_text(json.dumps(kept))
    plain, headers = ChannelCredentials({"RATTLER_AUTH_FILE": str(tmp_path / "auth.json")}).request_of(url)
    return plain, headers.get("Authorization")


BASIC = "Basic " + base64.b64encode(b"user:word").decode()


@pytest.mark.parametrize(
    ("kept", "url", "expected"),
    [
        (
            {"host.example": {"BearerToken": "tk"}},
            "https://host.example/c/a",
            ("https://host.example/c/a", "Bearer tk"),
        ),
        ({"*.example": {"BearerToken": "tk"}}, "https://host.example/c", ("https://host.example/c", "Bearer tk")),
        (
            {"host.example": {"BasicHTTP": {"username": "user", "password": "word"}}},
            "https://host.example/c",
            ("https://host.example/c", BASIC),
        ),
        ({"host.example": {"CondaToken": "tk"}}, "https://host.example/c", ("https://host.example/t/tk/c", None)),
        ({"other.example": {"BearerToken": "tk"}}, "https://host.example/c", ("https://host.example/c", None)),
        ({}, "https://user:word@host.example/c", ("https://host.example/c", BASIC)),
        ({}, "https://host.example/t/tk/c", ("https://host.example/t/tk/c", None)),
    ],
    ids=["bearer", "wildcard", "basic", "conda", "other-host", "in-address", "in-path"],
)
def test_credentials_are_those_that_rattler_keeps(
    tmp_path: Path, kept: dict[str, object], url: str, expected: tuple[str, str | None]
) -> None:
    assert asked(kept, url, tmp_path) == expected


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://host.example/c", True),
        ("http://host.example/c", False),
        ("http://192.0.2.1/c", False),
        ("http://127.0.0.1.example/c", False),
        ("http://localhost:8080/c", True),
        ("http://127.8.9.1/c", True),
        ("http://[::1]/c", True),
    ],
)
@pytest.mark.parametrize("kind", ["netrc", "BearerToken", "CondaToken", "BasicHTTP"])
def test_what_is_stored_is_not_sent_where_others_can_read_it(
    tmp_path: Path, *, url: str, sent: bool, kind: str
) -> None:
    host = urlsplit(url).hostname or ""
    name = f"[{host}]" if ":" in host else host
    if kind == "netrc":
        (tmp_path / ".netrc").write_text(f"machine {host} login user password word\n")
    else:
        entry: object = {"username": "user", "password": "word"} if kind == "BasicHTTP" else "word"
        (tmp_path / ".rattler").mkdir()
        (tmp_path / ".rattler" / "credentials.json").write_text(json.dumps({name: {kind: entry}}))
    address, headers = ChannelCredentials({"HOME": str(tmp_path)}).request_of(url)
    assert (address != url or "Authorization" in headers) is sent
    assert (stored_authorization(url, {"HOME": str(tmp_path)}) is not None) is sent


def test_netrc_is_read(tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine host.example login user password word\n")
    assert ChannelCredentials({"HOME": str(tmp_path)}).request_of("https://host.example/c")[1] == {
        "Authorization": BASIC
    }


def test_a_damaged_credentials_file_is_named_but_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text('{"host": {"BearerToken": "secret"')
    with pytest.raises(ConfigError) as caught:
        ChannelCredentials({"RATTLER_AUTH_FILE": str(tmp_path / "auth.json")}).request_of("https://host/c")
    assert "auth.json" in str(caught.value)
    assert "secret" not in str(caught.value)
