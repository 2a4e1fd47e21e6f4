# SPDX-License-Identifier: BSD-3-Clause
"""The addresses of buckets: ``s3://BUCKET/PREFIX?endpoint=URL&region=NAME``.

What an address leaves out comes from where every S3 client looks: the AWS environment variables and files. Nothing
secret can stand in an address, since addresses are printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from channel_tools.errors import UsageError

SCHEME = "s3"
_FORM = "s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME for a server other than AWS"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()+=@~-]+(/[A-Za-z0-9!_.*'()+=@~-]+)*")
_KEYS = ("endpoint", "region")


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketAddress:
    """Where a channel lies in a bucket; ``prefix`` has no slash at either end and may be empty."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        """The object key of a name relative to the address."""
        return f"{self.prefix}/{name}" if self.prefix else name


def parse_bucket_address(text: str) -> BucketAddress:
    """Take an ``s3://`` address apart. Raises UsageError for anything that is not in the form it says."""
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise UsageError(
            "an s3:// address holds no credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE",
        )
    prefix = unquote(parts.path).strip("/")
    if parts.scheme != SCHEME or not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise UsageError(f"{text}: no address of a bucket; expected {_FORM}")
    if prefix and (not _PREFIX.fullmatch(prefix) or any(part in {".", ".."} for part in prefix.split("/"))):
        raise UsageError(f"{text}: the prefix {prefix!r} cannot stand in a channel's address; expected {_FORM}")
    options = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(options.keys() - set(_KEYS)):
        raise UsageError(f"{text}: unknown setting {unknown[0]!r}; expected {_FORM}")
    endpoint, region = (options[key][-1] if options.get(key) else None for key in _KEYS)
    return BucketAddress(
        bucket=parts.netloc, prefix=prefix, endpoint=None if endpoint is None else _endpoint(endpoint), region=region
    )


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.netloc or parts.path.strip("/") or parts.query:
        raise UsageError(f"endpoint {text!r}: expected http://HOST:PORT or https://HOST", hint=f"the form is {_FORM}")
    if "@" in parts.netloc:
        raise UsageError("an endpoint holds no credentials", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    return f"{parts.scheme}://{parts.netloc}"
