# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong at S3-like servers, as it is reported."""

from __future__ import annotations

import pytest
from botocore import exceptions as aws

from channel_tools.publish.s3.errors import ConditionFailedError, NotThereError, reported
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError

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
