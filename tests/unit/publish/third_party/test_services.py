# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.publish.target import open_target
from channel_tools.publish.third_party.services import parse_service_address
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize(
    ("text", "service", "read", "arguments"),
    [
        (
            "artifactory+https://host/artifactory/toys", "Artifactory", "https://host/artifactory/toys",
            {"url": "https://host/artifactory", "channels": "toys"},
        ),
        ("quetz+https://host/toys/", "quetz", "https://host/get/toys", {"url": "https://host", "channels": "toys"}),
        ("prefix://toys", "prefix.dev", "https://prefix.dev/toys", {"url": "https://prefix.dev", "channels": "toys"}),
        (
            "anaconda://owner", "Anaconda", "https://conda.anaconda.org/owner",
            {"url": "https://api.anaconda.org", "owner": "owner", "channel": ["main"]},
        ),
        (
            "cloudsmith://owner/repo", "Cloudsmith", "https://conda.cloudsmith.io/owner/repo",
            {"url": "https://api.cloudsmith.io/v1", "owner": "owner", "repo": "repo"},
        ),
        (
            "anaconda://owner?api=https://host/api/&read=https://host/repo/owner", "Anaconda", "https://host/repo/owner",
            {"url": "https://host/api", "owner": "owner", "channel": ["main"]},
        ),
    ],
)  # fmt: skip
def test_addresses_say_where_packages_go_and_are_read(
    text: str, service: str, read: str, arguments: dict[str, object]
) -> None:
    parsed = parse_service_address(text)
    assert (parsed.service.name, parsed.read) == (service, read)
    assert parsed.service.arguments(parsed, "main") == arguments
    assert open_target(text, environ={}).address == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quetz+https://host", "expected quetz\\+https://HOST/CHANNEL"),
        ("artifactory+https:///toys", "expected artifactory"),
        ("quetz+https://key@host/toys", "must not contain credentials"),
        ("anaconda://", "expected anaconda://OWNER"),
        ("anaconda://owner/more", "expected anaconda://OWNER"),
        ("anaconda://owner?api=https://key@host", "must not contain credentials"),
        ("cloudsmith://owner", "expected cloudsmith://OWNER/REPOSITORY"),
        ("prefix://toys?key=x", "expected prefix://CHANNEL"),
    ],
)
def test_what_is_no_address_is_told_with_the_form(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_target(text, environ={})
