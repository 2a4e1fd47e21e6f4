# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.publish.bucket import BucketAddress, parse_bucket_address, replicate
from channel_tools.publish.target import open_target
from channel_tools.requests.plan import PlanRequest
from channel_tools.requests.publish import PublishRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.progress import SilentProgress


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


def test_settings_that_cannot_be_used_are_an_error_of_usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_PROFILE", "there-is-none")
    with pytest.raises(UsageError, match="AWS settings of this machine cannot be used"):
        replicate(tmp_path, "s3://toys/a", environ={}, progress=SilentProgress(), dry_run=True)


def test_nothing_is_changed_in_a_bucket() -> None:
    with pytest.raises(UsageError, match="a bucket is a copy of a channel's folder") as caught:
        open_target("s3://key:word@toys/a", environ={})
    assert "word" not in f"{caught.value.message}{caught.value.hint}"


@pytest.mark.parametrize(
    "options",
    [{"label": "testing"}, {"files": (Path("a-1-0.conda"),)}, {"plan": PlanRequest(stack="udp")}, {"address": "x"}],
)
def test_a_bucket_takes_a_whole_folder_alone(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="a bucket is a copy of a channel's folder"):
        PublishRequest(target="s3://toys/a", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--from is for buckets"):
        PublishRequest(target="/srv/channel", source=Path("/srv/other"))
