# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.addresses import channel_address, file_name_of, has_credentials, local_path, without_credentials


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
