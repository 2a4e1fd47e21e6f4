# SPDX-License-Identifier: BSD-3-Clause
"""Addresses and names in OCI registries, and the credentials for one."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from channel_tools.conda.package import PackageKey
from channel_tools.publish.oci.docker_config import authorization_for
from channel_tools.publish.oci.layout import parse_registry_address
from channel_tools.publish.oci.registry import Registry
from channel_tools.publish.target import open_target
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.http.client import basic_authorization

ADDRESS = parse_registry_address("oci://registry.example:5000/team/ours")
OURS = basic_authorization("us", "a:b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("oci://registry.example", "not a valid address of a channel"),
        ("oci://registry.example/Upper", "not a valid address of a channel"),
        ("oci://registry.example/a//b", "not a valid address of a channel"),
        ("oci://registry.example/ours:latest", "not a valid address of a channel"),
        ("oci://registry.example/ours?insecure=yes", "not a valid address of a channel"),
        ("oci:///ours", "it names no host"),
        ("oci://us:secret@registry.example/ours", "must not contain credentials"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        open_target(text, environ={})
    assert "secret" not in f"{raised.value}{raised.value.hint}"


@pytest.mark.parametrize(
    ("file_name", "expected"),
    [
        ("toy-1.0-0.conda", ("team/ours/linux-64/toy", "1.0-0")),
        ("_lib-1!2+cu-h1_0.conda", ("team/ours/linux-64/zzz_lib", "1__e__2__p__cu-h1_0")),
        ("a-b-1.0=2-0.tar.bz2", ("team/ours/linux-64/a-b", "1.0__eq__2-0")),
    ],
)
def test_a_package_is_named_as_in_conda_oci_mirror(file_name: str, expected: tuple[str, str]) -> None:
    assert ADDRESS.place_of(PackageKey("linux-64", file_name), label="main") == expected


@pytest.mark.parametrize(
    "file_name", ["toy_-1.0-0.conda", "a___b-1.0-0.conda", "toy-1.0-a~b.conda", f"{'n' * 250}-1-0.conda"]
)
def test_a_package_that_no_registry_can_hold_is_an_error(file_name: str) -> None:
    with pytest.raises(UsageError, match=r"no OCI registry can hold it|longer than the 255"):
        ADDRESS.place_of(PackageKey("linux-64", file_name), label="main")


def test_a_label_is_a_path_below_the_channel() -> None:
    assert ADDRESS.label_address("main") == "oci://registry.example:5000/team/ours"
    assert ADDRESS.label_address("rc1") == "oci://registry.example:5000/team/ours/label/rc1"
    with pytest.raises(UsageError, match="not a label in an OCI registry"):
        ADDRESS.label_address("Testing")


def docker(folder: Path, **config: object) -> dict[str, str]:
    """The environment of a user with this configuration."""
    (folder / "config.json").write_text(json.dumps(config))
    return {"HOME": str(folder), "DOCKER_CONFIG": str(folder)}


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


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


def test_a_credential_helper_is_asked_once_for_all_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = docker(tmp_path, credHelpers={"registry.example:5000": "toys"})
    asked, helper = tmp_path / "asked", tmp_path / "docker-credential-toys"
    answer = '{"Username": "us", "Secret": "a:b"}'
    helper.write_text(f"#!/bin/sh\necho asked >> {asked}\ncat > /dev/null\necho '{answer}'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    registry = Registry(address=ADDRESS, environ=environ)
    for name in ("team/ours/linux-64/toy", "team/ours/noarch/toy"):
        with registry.repository(name) as repository:
            assert repository.has_credentials
    assert asked.read_text() == "asked\n"
