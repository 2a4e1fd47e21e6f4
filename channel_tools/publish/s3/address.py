# SPDX-License-Identifier: BSD-3-Clause
"""The addresses of buckets: ``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``.

What an address leaves out is looked up where every S3 client does: in the AWS environment variables and files. An
address cannot contain secrets, since addresses are printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs, unquote

import botocore.config
import botocore.exceptions
import botocore.session

from channel_tools.conda.addresses import parse_address
from channel_tools.publish.bucket.target import BucketTarget
from channel_tools.publish.s3.client import S3Store
from channel_tools.publish.store import CONNECTIONS
from channel_tools.system.errors import UsageError
from channel_tools.system.http.pace import Timeouts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_s3.client import S3Client

SCHEME = "s3"
_FORM = "s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME for a server other than AWS"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()+=@~-]+(/[A-Za-z0-9!_.*'()+=@~-]+)*")
_KEYS = ("endpoint", "region")
_DEFAULT_REGION = "us-east-1"
_TIMEOUTS = Timeouts(connect_s=10.0, read_s=60.0)
_ATTEMPTS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketAddress:
    """The place of a channel in a bucket; ``prefix`` has no slash at either end and may be empty."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.prefix}".rstrip("/")


def parse_bucket_address(text: str) -> BucketAddress:
    """Parse an ``s3://`` address. Raises UsageError, which shows the expected form, if it is invalid."""
    parts = parse_address(text, forms=_FORM)
    if "@" in parts.netloc:
        raise UsageError(
            "an s3:// address must not contain credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE",
        )
    prefix = unquote(parts.path).strip("/")
    if parts.scheme != SCHEME or not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise UsageError(f"{text}: not a valid bucket address; expected {_FORM}")
    if prefix and (not _PREFIX.fullmatch(prefix) or any(part in {".", ".."} for part in prefix.split("/"))):
        raise UsageError(f"{text}: the prefix {prefix!r} cannot be part of a channel's address; expected {_FORM}")
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(options.keys() - set(_KEYS)):
        raise UsageError(f"{text}: unknown setting {unknown[0]!r}; expected {_FORM}")
    endpoint, region = (options[key][-1] if options.get(key) else None for key in _KEYS)
    return BucketAddress(
        bucket=parts.netloc, prefix=prefix, endpoint=None if endpoint is None else _endpoint(endpoint), region=region
    )


def _endpoint(text: str) -> str:
    parts = parse_address(text, forms="http://HOST:PORT or https://HOST")
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"endpoint {text!r}: expected http://HOST:PORT or https://HOST", hint=f"the form is {_FORM}")
    if "@" in parts.netloc:
        raise UsageError(
            "an endpoint must not contain credentials", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return f"{parts.scheme}://{parts.netloc}"


def open_s3(address: str, environ: Mapping[str, str]) -> BucketTarget:
    """The channel that an ``s3://`` address names; it need not exist yet, and nothing is contacted.

    Raises UsageError for an address or AWS settings that cannot be used.
    """
    parsed = parse_bucket_address(address)
    return BucketTarget(
        store=connect(parsed, region=environ.get("AWS_REGION")), address=str(parsed), prefix=parsed.prefix
    )


def connect(
    address: BucketAddress, *, region: str | None = None, timeouts: Timeouts = _TIMEOUTS, attempts: int = _ATTEMPTS
) -> S3Store:
    """A client for the bucket; credentials, endpoint and region are looked up where AWS's own tools do.

    A request that fails temporarily is tried ``attempts`` times in all. Nothing is sent yet. Raises UsageError for a
    profile or a setting that does not exist.
    """
    config = botocore.config.Config(
        connect_timeout=timeouts.connect_s,
        read_timeout=timeouts.read_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=2 * CONNECTIONS,
        # newer defaults add checksums that many S3-compatible servers do not support; every body has its MD5 instead
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    session = botocore.session.Session()
    try:
        chosen = address.region or region or session.get_config_variable("region") or _DEFAULT_REGION
        client = session.create_client("s3", region_name=chosen, endpoint_url=address.endpoint, config=config)
    except (botocore.exceptions.BotoCoreError, ValueError) as err:
        message = f"{address}: the AWS settings of this machine cannot be used ({type(err).__name__})"
        raise UsageError(message, hint="check AWS_PROFILE, AWS_ENDPOINT_URL and the files in ~/.aws") from None
    return S3Store(cast("S3Client", client), bucket=address.bucket)
