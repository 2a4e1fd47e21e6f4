# SPDX-License-Identifier: BSD-3-Clause
"""Authorization: checks the token of a request against the token file.

Every rejection looks the same, whatever its reason: no token, an unknown, expired or revoked one, one for another
channel, a channel that does not exist. The file is checked (its size and times) on every request, so a revocation
takes effect at once. Reads ask the Gatekeeper; Starlette's routes ask the Guard, which turns rejections into responses.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import time
from typing import TYPE_CHECKING

from starlette.responses import Response

from channel_tools.publish.model import MAIN_LABEL
from channel_tools.publish.server.protocol import ErrorResponse, encode
from channel_tools.serve.access.tokens import TokenTable, is_token, read_token_file
from channel_tools.system.errors import (
    ChannelError,
    ChannelToolsError,
    ConfigError,
    DiskFullError,
    FileAccessError,
    FoundationError,
    IntegrityError,
    UsageError,
    VerificationError,
    raise_without_means,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.requests import Request

    from channel_tools.serve.access.tokens import Access, TokenRecord

_log = logging.getLogger(__name__)
_TOKEN_LENGTH_LIMIT = 256
_Signature = tuple[int, int, int] | None
Public = frozenset[tuple[str, str]]
"""(channel, label) pairs that everybody may read."""
RETRY_AFTER_S = 2
_REALM = b'realm="channel_tools"'
CHALLENGE = [(b"www-authenticate", b"Bearer " + _REALM), (b"www-authenticate", b"Basic " + _REALM)]
NOT_CACHED = {"cache-control": "no-store"}
_STATUS: dict[type[ChannelToolsError], int] = {
    UsageError: 400,
    ChannelError: 409,
    FoundationError: 409,
    IntegrityError: 422,
    VerificationError: 422,
    DiskFullError: 507,
    FileAccessError: 507,
}
_FORBIDDEN = ErrorResponse(
    kind="UsageError", message="the token may only read this label", hint="ask for a token that may write"
)
_UNAUTHORIZED = ErrorResponse(
    kind="UsageError", message="a valid token for this channel and label is required", hint="use a token that may write"
)


def parse_public(names: tuple[str, ...]) -> Public:
    """Parse names of the form ``CHANNEL`` (meaning its label main) and ``CHANNEL/LABEL``."""
    pairs = (name.partition("/") for name in names)
    return frozenset((channel, label or MAIN_LABEL) for channel, _slash, label in pairs)


def tokens_of(path_token: str | None, authorization: bytes | None, api_key: bytes | None) -> tuple[str, ...]:
    """The tokens in the path, else in ``Authorization`` (Bearer, Basic, or quetz's bare key), else in ``X-API-Key``.

    They are candidates: Basic authorization gives two, the password and the user name.
    """
    if path_token is not None:
        return (path_token,)
    if authorization is not None:
        scheme, _space, credentials = authorization.strip().partition(b" ")
        kind = scheme.lower()
        if kind in {b"bearer", b"token"}:
            return (_text(credentials.strip()),)
        if kind != b"basic":
            return ()
        try:
            user, _colon, password = base64.b64decode(credentials.strip(), validate=True).partition(b":")
        except binascii.Error:
            return ()
        return tuple(_text(part) for part in (password, user) if part)
    return () if api_key is None else (_text(api_key),)


def _text(value: bytes) -> str:
    return value[: _TOKEN_LENGTH_LIMIT + 1].decode("latin-1")


class Gatekeeper:
    """Decides on every request of one server process; not for several threads."""

    def __init__(self, tokens_file: Path, public: Public, *, clock: Callable[[], float] = time.time) -> None:
        self._file = tokens_file
        self._public = public
        self._clock = clock
        self._signature: _Signature = (-1, -1, -1)
        self._table = TokenTable(())

    def is_public(self, channel: str, label: str) -> bool:
        """Whether the label may be read without a token."""
        return (channel, label) in self._public

    def identify(self, tokens: tuple[str, ...]) -> TokenRecord | None:
        """The record of the valid token among those in a request, None if there is none.

        Wrong ones are not limited: looking one up takes a hash, and 192 random bits cannot be guessed. Raises
        WithoutMeansError if the token file cannot be read now.
        """
        self._refresh()
        records = (self._table.find(token) for token in tokens if is_token(token))
        return next((record for record in records if record is not None and record.is_valid(self._clock())), None)

    def may(self, record: TokenRecord | None, access: Access, channel: str, label: str) -> bool:
        """Whether a token, or a request without one (None), may read or write the label of the channel."""
        if access == "read" and (channel, label) in self._public:
            return True
        if record is None or not record.covers(channel, label):
            return False
        return access == "read" or record.access == "write"

    def _refresh(self) -> None:
        signature = _signature_of(self._file)
        if signature == self._signature:
            return
        try:
            token_file = read_token_file(self._file)
        except (ConfigError, FileAccessError) as err:
            if isinstance(err.__cause__, OSError):
                raise_without_means(err.__cause__)  # the next request tries again
            self._table = TokenTable(())
            _log.error("%s; every token is refused until it is repaired", err)
        else:
            self._table = TokenTable(token_file.records)
            for fault in token_file.faults:
                _log.error("%s; this token is refused, the others are not", fault)
        self._signature = signature


def _signature_of(path: Path) -> _Signature:
    try:
        status = os.stat(path)  # noqa: PTH116 - on every request
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class RejectedError(Exception):
    """The request gets ``response`` and nothing else."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class Guard:
    """Asks the gatekeeper about requests to the routes."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    def token_of(self, request: Request) -> TokenRecord | None:
        """The valid token of a request, None if it has none."""
        headers = dict(request.scope["headers"])
        tokens = tokens_of(None, headers.get(b"authorization"), headers.get(b"x-api-key"))
        record = self._gate.identify(tokens)
        request.scope["channel_tools.token"] = record.id if record else None
        return record

    def may_write(self, request: Request, channel: str, *labels: str) -> None:
        """Raise RejectedError unless the token of a request may write to all of these labels of the channel."""
        record = self.token_of(request)
        if record is not None and all(self._gate.may(record, "write", channel, label) for label in labels):
            return
        if record is not None and all(self._gate.may(record, "read", channel, label) for label in labels):
            raise RejectedError(json_response(_FORBIDDEN, 403))
        raise RejectedError(unauthorized())

    def may_write_somewhere(self, request: Request, channel: str) -> TokenRecord:
        """The token if it may write to a label of the channel; else raises RejectedError, before a body is read."""
        record = self.token_of(request)
        if record is None or not (record.channels is None or channel in record.channels):
            raise RejectedError(unauthorized())
        if record.access != "write":
            raise RejectedError(json_response(_FORBIDDEN, 403))
        return record


def json_response(message: object, status: int = 200, *, headers: dict[str, str] | None = None) -> Response:
    """A message encoded as a JSON response."""
    return Response(encode(message), status, media_type="application/json", headers={**NOT_CACHED, **(headers or {})})


def busy_response() -> Response:
    """A response with status 503: the client may send the same request again."""
    body = ErrorResponse(kind="ChannelToolsError", message="the server is overloaded", hint="try again later")
    return json_response(body, 503, headers={"retry-after": str(RETRY_AFTER_S)})


def unauthorized() -> Response:
    """The response to every request whose token is not valid here, whatever the reason."""
    response = json_response(_UNAUTHORIZED, 401)
    response.raw_headers.extend(CHALLENGE)
    return response


def hint_for_clients(error: ChannelToolsError) -> str | None:
    """What a client can do about an error; the hints for what the system denies are for who runs the server."""
    if isinstance(error, FileAccessError):
        return "ask who runs the server, which the system denies this"
    return error.hint


def error_response(error: ChannelToolsError, message: str | None = None, *, status: int | None = None) -> Response:
    """A ChannelToolsError as a response; ``message`` and ``status`` replace its own."""
    usual = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    body = ErrorResponse(kind=type(error).__name__, message=message or str(error), hint=hint_for_clients(error))
    return json_response(body, status or usual)
