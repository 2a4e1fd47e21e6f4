# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.conda.clients import _header_finder, make_client, split_credential


@pytest.mark.parametrize(
    ("address", "plain", "authorization", "sent"),
    [
        ("https://host/ours", "https://host/ours", None, None),
        ("https://host/t/secret/ours", "https://host/ours", "Bearer secret", "https://host/t/secret/ours"),
        (
            "https://host:8443/t/secret/ours/label/x",
            "https://host:8443/ours/label/x",
            "Bearer secret",
            "https://host:8443/t/secret/ours/label/x",
        ),
        (
            "https://me:secret@host/behind/t/secret/ours",
            "https://host/behind/ours",
            "Bearer secret",
            "https://host/behind/t/secret/ours",
        ),
        ("https://me:pass%40word@host/ours", "https://host/ours", "Basic bWU6cGFzc0B3b3Jk", None),
        ("https://me@host/ours", "https://host/ours", "Basic bWU6", None),
        ("file:///t/secret/ours", "file:///t/secret/ours", None, None),
        ("s3://bucket/t/secret", "s3://bucket/t/secret", None, None),
    ],
)
def test_credentials_leave_an_address(address: str, plain: str, authorization: str | None, sent: str | None) -> None:
    found, credential = split_credential(address)
    assert found == plain
    assert (credential.authorization if credential else None) == authorization
    assert (credential.address if credential else None) == sent
    assert "secret" not in repr(credential)


def test_a_credential_goes_to_its_channel_and_nowhere_else() -> None:
    channels = ("https://host/t/one/ours", "https://host/t/two/ours/label/x", "https://other/t/three/theirs")
    credentials = [credential for channel in channels if (credential := split_credential(channel)[1])]
    find = _header_finder(credentials)
    assert find("host", "/ours/linux-64/repodata.json") == {"Authorization": "Bearer one"}
    assert find("host", "/ours/label/x/noarch/a.conda") == {"Authorization": "Bearer two"}
    assert find("other", "/theirs/noarch/a.conda") == {"Authorization": "Bearer three"}
    for host, path in (("host", "/oursx/a"), ("host", "/theirs/a"), ("evil", "/ours/a"), ("other", "/ours/a")):
        assert find(host, path) is None


def test_a_client_is_made_for_addresses_without_credentials() -> None:
    addresses, _client = make_client(["https://host/t/secret/ours", "file:///srv/channel"])
    assert addresses == ("https://host/ours", "file:///srv/channel")
