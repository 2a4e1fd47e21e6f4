# SPDX-License-Identifier: BSD-3-Clause
"""From an address to a client of its bucket, set up to be patient and to say nothing that servers may not know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import botocore.config
import botocore.exceptions
import botocore.session

from channel_tools.errors import UsageError
from channel_tools.publish.objects_store import CONNECTIONS, ObjectStore

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

    from channel_tools.publish.objects_address import BucketAddress

_DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long to wait for a server, and how often to try again after a failure that may pass."""

    connect_s: float = 10.0
    read_s: float = 60.0
    attempts: int = 5


def connect(address: BucketAddress, *, region: str | None = None, patience: Patience | None = None) -> ObjectStore:
    """A client for the bucket; credentials, endpoint and region are looked for where AWS's own tools do.

    Nothing is sent yet. Raises UsageError for a profile or a setting that does not exist.
    """
    patience = patience or Patience()
    config = botocore.config.Config(
        connect_timeout=patience.connect_s,
        read_timeout=patience.read_s,
        retries={"mode": "standard", "total_max_attempts": patience.attempts},
        max_pool_connections=2 * CONNECTIONS,
        # newer defaults add checksums that many S3-like servers do not know; every body carries its MD5 instead
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
    return ObjectStore(cast("S3Client", client), bucket=address.bucket)
