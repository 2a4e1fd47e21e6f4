# SPDX-License-Identifier: BSD-3-Clause
"""The credentials for an OCI registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.publish.oci.docker_config import authorization_for
from channel_tools.system.errors import ConfigError
from channel_tools.system.http.client import basic_authorization
from tests.unit.publish.oci.docker import ADDRESS, auth, docker

OURS = basic_authorization("us", "a:b")


@pytest.mark.parametrize(
    "auths",
    [
        {"registry.example:5000": auth("us", "a:b")},
        {"https://registry.example:5000/v1/": auth("us", "a:b")},
        {"registry.example:5000": auth("other", "c"), "registry.example:5000/team": auth("us", "a:b")},
        {"registry.example:5000": {"username": "us", "password": "a:b"}},
    ],
)
def test_dockers_credentials_are_found(tmp_path: Path, auths: dict[str, object]) -> None:
    assert authorization_for(ADDRESS, docker(tmp_path, auths=auths)) == OURS


@pytest.mark.parametrize(
    "auths", [{}, {"registry.example": auth("us", "x")}, {"registry.example:5000/team/ours2": auth("us", "x")}]
)
def test_those_of_another_place_are_not(tmp_path: Path, auths: dict[str, object]) -> None:
    assert authorization_for(ADDRESS, docker(tmp_path, auths=auths)) is None


def test_what_is_stored_for_channels_comes_first(tmp_path: Path) -> None:
    environ = docker(tmp_path, auths={"registry.example:5000": auth("other", "c")})
    stored = tmp_path / "rattler.json"
    stored.write_text(json.dumps({"registry.example": {"BearerToken": "token"}}))
    assert authorization_for(ADDRESS, environ | {"RATTLER_AUTH_FILE": str(stored)}) == "Bearer token"


def test_a_file_that_is_none_is_an_error_without_its_content(tmp_path: Path) -> None:
    environ = docker(tmp_path, auths="secret")
    with pytest.raises(ConfigError, match="cannot be read as docker's configuration") as raised:
        authorization_for(ADDRESS, environ)
    assert "secret" not in str(raised.value)
    with pytest.raises(ConfigError, match="not a name and a password in base64"):
        authorization_for(ADDRESS, docker(tmp_path, auths={"registry.example:5000": {"auth": "secret"}}))


@pytest.mark.parametrize(
    "config",
    [
        {"credHelpers": {"registry.example:5000": "toys"}},
        {"auths": {"registry.example:5000": {}}, "credsStore": "toys"},
    ],
)
def test_a_credential_helper_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, object]
) -> None:
    environ = docker(tmp_path, **config)
    with pytest.raises(ConfigError, match="docker-credential-toys"):
        authorization_for(ADDRESS, environ)
    helper = tmp_path / "docker-credential-toys"
    helper.write_text(
        '#!/bin/sh\ntest "$1 $(cat)" = "get registry.example:5000" && echo \'{"Username": "us", "Secret": "a:b"}\'\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert authorization_for(ADDRESS, environ) == OURS
    helper.write_text("#!/bin/sh\nexit 1\n")
    assert authorization_for(ADDRESS, environ) is None
    helper.write_text("#!/bin/sh\ncat > /dev/null\necho secret\n")
    with pytest.raises(ConfigError, match=r"did not answer with Username and Secret$"):
        authorization_for(ADDRESS, environ)


@pytest.mark.parametrize(
    "config",
    [
        {
            "auths": {
                "registry.example:5000": {**auth("00000000-0000-0000-0000-000000000000", ""), "identitytoken": "s3"}
            }
        },
        {"auths": {"registry.example:5000": {"identitytoken": "s3"}}},
        {"credHelpers": {"registry.example:5000": "toys"}},
    ],
)
def test_an_identity_token_is_an_error_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, object]
) -> None:
    helper = tmp_path / "docker-credential-toys"
    helper.write_text('#!/bin/sh\ncat > /dev/null\necho \'{"Username": "<token>", "Secret": "s3"}\'\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ConfigError, match=r"identity token for registry\.example:5000") as raised:
        authorization_for(ADDRESS, docker(tmp_path, **config))
    assert "s3" not in f"{raised.value}{raised.value.hint}"
