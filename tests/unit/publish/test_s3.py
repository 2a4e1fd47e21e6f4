# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of buckets, and what goes wrong at S3-like servers."""

from __future__ import annotations

import pytest
from botocore import exceptions as aws

from channel_tools.publish.s3.address import BucketAddress, open_s3, parse_bucket_address
from channel_tools.publish.s3.errors import ConditionFailedError, NotThereError, reported
from channel_tools.publish.target import open_target
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError


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
        assert target._place("main").base + "noarch/x" == f"{base}noarch/x"
        assert target._place("testing").base + "noarch/x" == f"{base}label/testing/noarch/x"


def test_settings_that_cannot_be_used_are_an_error_of_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    with pytest.raises(UsageError, match="AWS settings of this machine cannot be used"):
        open_target("s3://toys/a", environ={})


SECRET = "said-by-the-server"  # noqa: S105 - stands for one
CODES: list[tuple[str, type[ChannelToolsError], str, str]] = [
    ("InvalidAccessKeyId", NetworkError, "credentials are not accepted", "AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch", NetworkError, "credentials are not accepted", "AWS_PROFILE"),
    ("ExpiredToken", NetworkError, "credentials are not accepted", "AWS_SESSION_TOKEN"),
    ("AccessDenied", NetworkError, "these credentials are not allowed to write x", "list objects"),
    ("403", NetworkError, "these credentials are not allowed to write x", "list objects"),
    ("PermanentRedirect", UsageError, "in another region", "AWS_REGION"),
    ("NoSuchBucket", UsageError, "no such bucket", "create the bucket"),
    ("RequestTimeTooSkewed", NetworkError, "clock is wrong", "set the clock"),
    (
        "BadDigest",
        IntegrityError,
        "the server received other bytes than were sent to write x",
        "run the same command again",
    ),
    ("NotImplemented", ChannelError, "cannot write x under the conditions", "If-None-Match"),
    ("SlowDown", NetworkError, r"failed to write x \(SlowDown\)", "run the same command again"),
]


def fail(err: Exception) -> None:
    with reported("write x", where="s3://toys at http://host"):
        raise err


@pytest.mark.parametrize(("code", "error", "message", "hint"), CODES, ids=[row[0] for row in CODES])
def test_codes_become_our_errors_and_the_servers_words_are_dropped(
    code: str, error: type[ChannelToolsError], message: str, hint: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        fail(aws.ClientError({"Error": {"Code": code, "Message": SECRET}}, "PutObject"))
    assert caught.value.message.startswith("s3://toys at http://host: ")
    assert hint in str(caught.value.hint)
    assert SECRET not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("NoSuchKey", NotThereError),
        ("404", NotThereError),
        ("PreconditionFailed", ConditionFailedError),
        ("ConditionalRequestConflict", ConditionFailedError),
    ],
)
def test_what_callers_expect_is_no_error_of_ours(code: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        fail(aws.ClientError({"Error": {"Code": code}}, "PutObject"))


@pytest.mark.parametrize(
    ("err", "message"),
    [
        (
            aws.EndpointConnectionError(endpoint_url=SECRET),
            r"could not be reached to write x \(EndpointConnectionError\)",
        ),
        (aws.ReadTimeoutError(endpoint_url=SECRET), "the request to write x timed out"),
        (aws.NoCredentialsError(), "no credentials found"),
        (aws.ResponseStreamingError(error=SECRET), "could not be reached"),
        (ConnectionResetError(SECRET), "could not be reached"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_failures_on_the_way_are_told_by_kind(err: Exception, message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        fail(err)
    assert SECRET not in caught.value.message
