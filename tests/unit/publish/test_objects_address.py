# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.errors import UsageError
from channel_tools.publish.objects_address import BucketAddress, parse_bucket_address
from channel_tools.publish.open import open_target


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
        ("s3:///a", "no address of a bucket"),
        ("s3://Toys/a", "no address of a bucket"),
        ("s3://toys:9000/a", "no address of a bucket"),
        ("s3://toys/a#b", "no address of a bucket"),
        ("s3://key:word@toys/a", "holds no credentials"),
        ("s3://toys/a?endpoint=http://key:word@host", "holds no credentials"),
        ("s3://toys/a/../b", "prefix 'a/../b' cannot stand"),
        ("s3://toys/a//b", "prefix 'a//b' cannot stand"),
        ("s3://toys/a%20b", "prefix 'a b' cannot stand"),
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
    assert BucketAddress(bucket="toys").key("noarch/x") == "noarch/x"
    assert BucketAddress(bucket="toys", prefix="a/b").key("noarch/x") == "a/b/noarch/x"


def test_settings_that_cannot_be_used_are_an_error_of_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    with pytest.raises(UsageError, match="AWS settings of this machine cannot be used"):
        open_target("s3://toys/a", environ={})
