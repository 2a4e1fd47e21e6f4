# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.conda.addresses import (
    channel_address,
    file_name_of,
    has_credentials,
    local_path,
    parse_address,
    without_credentials,
)
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("https://user:pw@host/chan", "https://host/chan"),
        ("https://token@host:8443/chan", "https://host:8443/chan"),
        ("https://host/t/tk-1234/chan/linux-64/a-1-0.conda", "https://host/chan/linux-64/a-1-0.conda"),
        ("https://host/proxy/t/tk-1234", "https://host/proxy"),
        ("https://host/chan/a.conda?X-Amz-Signature=abc#part", "https://host/chan/a.conda"),
        ("s3://key:secret@bucket/chan", "s3://bucket/chan"),
    ],
)
def test_credentials_are_taken_away(address: str, plain: str) -> None:
    assert without_credentials(address) == plain
    assert has_credentials(address)
    assert not has_credentials(plain)


@pytest.mark.parametrize("address", ["https://user:secret@[/chan", "https://[user:secret@]/chan"])
def test_of_what_is_no_address_nothing_is_shown(address: str) -> None:
    assert "secret" not in without_credentials(address)


@pytest.mark.parametrize("address", ["https://host/chan", "file:///srv/t/x/chan", "https://host/label/test/noarch"])
def test_addresses_without_any_stay(address: str) -> None:
    assert without_credentials(address) == address


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://[", "Invalid IPv6 URL"),
        ("http://", "names no host"),
        ("https:///chan", "names no host"),
        ("s3://", "names no host"),
        ("http://host:99999/chan", "Port out of range"),
        ("http://host:x/chan", "Port could not be cast"),
        ("http://host:0/chan", "its port is 0"),
        ("http://a b/chan", "blanks"),
        ("https://host/ch\nan", "blanks or characters that cannot be printed"),
        ("https://host/\udcff", "cannot be printed"),
        ("https://" + "x" * 64 + "/chan", "label"),
        ("https://../chan", "label"),
        ("file://", "names no folder"),
        ("file:///srv/%00", "names no folder"),
        ("file://host/srv", "has no host, found 'host'"),
    ],
)
def test_what_cannot_be_an_address_is_refused(address: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_address(address)
    with pytest.raises(UsageError, match=problem):
        channel_address(address)


@pytest.mark.parametrize(
    "channel", ["", "a b", "x\n", "javascript:alert(1)", "-x", "ftp://host/chan", "~nosuchuser/chan"]
)
def test_what_names_no_channel_is_refused(channel: str) -> None:
    with pytest.raises(UsageError):
        channel_address(channel)


def test_a_wrong_address_is_told_without_its_secrets() -> None:
    with pytest.raises(UsageError) as caught:
        parse_address("https://user:secret@host:99999/t/secret/chan?x=secret")
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    assert "https://host:99999/chan" in str(caught.value)


def test_folders_become_addresses(tmp_path: Path) -> None:
    assert channel_address(str(tmp_path)) == tmp_path.as_uri()
    assert channel_address("https://host/chan/") == "https://host/chan"


def test_bare_names_are_channels_of_anaconda_org_unless_a_folder_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert channel_address("conda-forge") == "https://conda.anaconda.org/conda-forge"
    (tmp_path / "conda-forge").mkdir()
    assert channel_address("conda-forge") == (tmp_path / "conda-forge").as_uri()


def test_local_paths() -> None:
    assert local_path("file:///srv/my%20channel") == Path("/srv/my channel")
    assert local_path("https://host/srv") is None
    assert file_name_of("https://host/noarch/a-1%211.0-0.conda") == "a-1!1.0-0.conda"
