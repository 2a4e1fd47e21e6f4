# SPDX-License-Identifier: BSD-3-Clause
"""Translates errors of S3-compatible object stores.

Only the error's code is taken from the server's response: messages of servers and of the library can contain access
keys and signed addresses.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore import exceptions as aws

from channel_tools.publish.store import NO_CONDITIONS_HINT
from channel_tools.system.errors import ChannelError, ChannelToolsError, IntegrityError, NetworkError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CREDENTIALS_HINT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN for temporary ones), or AWS_PROFILE"
)
_NOT_THERE = frozenset({"NoSuchKey", "NoSuchUpload", "NotFound", "404"})
_CONDITION = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "OperationAborted", "409"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reported:
    """How some error codes are reported; ``{what}`` is replaced by the attempted action."""

    codes: frozenset[str]
    error: type[ChannelToolsError]
    message: str
    hint: str


_KNOWN_CODES = (
    _Reported(
        codes=frozenset({"NoSuchBucket", "InvalidBucketName"}),
        error=UsageError,
        message="there is no such bucket",
        hint="create the bucket first, or correct its name, the endpoint (AWS_ENDPOINT_URL) or the region",
    ),
    _Reported(
        codes=frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}),
        error=UsageError,
        message="the bucket is in another region",
        hint="set the bucket's region with AWS_REGION, or with ?region=NAME in the address",
    ),
    _Reported(
        codes=frozenset(
            {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired"}
            | {"InvalidClientTokenId", "AuthFailure", "InvalidSecurity", "Unauthorized", "401"}
        ),
        error=NetworkError,
        message="the credentials are not accepted",
        hint=_CREDENTIALS_HINT,
    ),
    _Reported(
        codes=frozenset({"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden", "403"}),
        error=NetworkError,
        message="these credentials are not allowed to {what}",
        hint="grant them permission to get, put, delete and list objects, and to list and abort multipart uploads",
    ),
    _Reported(
        codes=frozenset({"RequestTimeTooSkewed"}),
        error=NetworkError,
        message="this machine's clock is wrong",
        hint="set the clock",
    ),
    _Reported(
        codes=frozenset({"BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "InvalidDigest"}),
        error=IntegrityError,
        message="the server received other bytes than were sent to {what}",
        hint="run the same command again; if that fails too, something on the way changes the bytes",
    ),
    _Reported(
        codes=frozenset({"NotImplemented", "501"}),
        error=ChannelError,
        message="the server cannot {what} under the conditions that publishing requires",
        hint=NO_CONDITIONS_HINT,
    ),
)


class NotThereError(Exception):
    """The object, or the upload, does not exist."""


class ConditionFailedError(Exception):
    """The object is not in the state that a conditional write asked for."""


@contextlib.contextmanager
def reported(action: str, *, where: str) -> Iterator[None]:
    """Turn what the S3 library raises in the block into NotThereError, ConditionFailedError or a ChannelToolsError.

    For messages, ``action`` is the action with its object, ``where`` the store. Raises UsageError (no such bucket,
    another region), NetworkError (unreachable, access denied), IntegrityError (bytes changed on the way), ChannelError
    (not supported).
    """
    try:
        yield
    except aws.ClientError as err:
        raise _from_response(err, action, where) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError):
        message = f"{where}: no credentials found; they are required to {action}"
        raise NetworkError(message, hint=_CREDENTIALS_HINT) from None
    except (aws.ReadTimeoutError, aws.ConnectTimeoutError):
        message = f"{where}: the request to {action} timed out"
        raise NetworkError(message, hint="run the same command again: what was sent is kept") from None
    except (aws.BotoCoreError, OSError) as err:
        message = f"{where}: could not be reached to {action} ({type(err).__name__})"
        hint = "check the endpoint and the network, then run the same command again: what was sent is kept"
        raise NetworkError(message, hint=hint) from None


def _from_response(err: aws.ClientError, action: str, where: str) -> Exception:
    code = str(err.response.get("Error", {}).get("Code", "unknown"))  # the HTTP status if there was no body
    if code in _NOT_THERE:
        return NotThereError(action)
    if code in _CONDITION:
        return ConditionFailedError(action)
    for known in _KNOWN_CODES:
        if code in known.codes:
            message = f"{where}: {known.message.format(what=action)} ({code})"
            return known.error(message, hint=known.hint)
    return NetworkError(
        f"{where}: failed to {action} ({code})", hint="run the same command again: what was sent is kept"
    )
