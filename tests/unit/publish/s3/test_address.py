# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.publish.s3.address import BucketAddress, open_s3, parse_bucket_address
from channel_tools.publish.target import open_target
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://toys", BucketAddress(bucket="toys")),
        ("s3://toys/", BucketAddress(bucket="toys")),
        ("s3://toys/a/b/", BucketAddress(bucket="toys", prefix="a/b")),
        (
            "s3://toys/a?endpoint=http://127.0.0.1:9000/&region=eu-1",
            BucketAddress(bucket="toys", prefix="a", endpoint="http://127.0.0.1:9000", region="eu-1"),
        ),
    ],
)
def test_addresses_are_taken_apart(text: str, address: BucketAddress) -> None:
    assert parse_bucket_address(text) == address
    assert str(address) == text.partition("?")[0].rstrip("/")
    assert open_target(text, environ={}).address == str(address)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s3:///a", "it names no host"),
        ("s3://Toys/a", "not a valid bucket address"),
        ("s3://toys:9000/a", "not a valid bucket address"),
        ("s3://toys/a#b", "not a valid bucket address"),
        ("s3://key:word@toys/a", "must not contain credentials"),
        ("s3://toys/a?endpoint=http://key:word@host", "must not contain credentials"),
        ("s3://toys/a/../b", "prefix 'a/../b' cannot be part"),
        ("s3://toys/a//b", "prefix 'a//b' cannot be part"),
        ("s3://toys/a%20b", "prefix 'a b' cannot be part"),
        ("s3://toys/a?endpoint=host:9000", "expected http://HOST:PORT"),
        ("s3://toys/a?endpoint=http://host/path", "expected http://HOST:PORT"),
        ("s3://toys/a?secret=x", "unknown setting 'secret'"),
    ],
)
def test_what_is_no_address_is_told_without_the_password(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_bucket_address(text)
    assert "word" not in f"{caught.value.message}{caught.value.hint}"


def test_keys_lie_below_the_prefix() -> None:
    for text, base in (("s3://toys", ""), ("s3://toys/a/b", "a/b/")):
        target = open_s3(text, {})
        assert target._label("main").base + "noarch/x" == f"{base}noarch/x"
        assert target._label("testing").base + "noarch/x" == f"{base}label/testing/noarch/x"


def test_settings_that_cannot_be_used_are_an_error_of_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    with pytest.raises(UsageError, match="AWS settings of this machine cannot be used"):
        open_target("s3://toys/a", environ={})
