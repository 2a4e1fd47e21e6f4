# SPDX-License-Identifier: BSD-3-Clause
"""Who may write: the token of a request to the routes, and how a refusal or an error is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from channel_tools.errors import (
    ChannelError,
    ChannelToolsError,
    DiskFullError,
    FoundationError,
    IntegrityError,
    UsageError,
    VerificationError,
)
from channel_tools.publish.wire import ErrorAnswer, encode
from channel_tools.serve.access import TooManyGuesses, credentials_of
from channel_tools.serve.asgi import CHALLENGE

if TYPE_CHECKING:
    from starlette.requests import Request

    from channel_tools.serve.access import Gatekeeper
    from channel_tools.serve.tokens import TokenRecord

NOT_KEPT = {"cache-control": "no-store"}
_STATUS: dict[type[ChannelToolsError], int] = {
    UsageError: 400,
    ChannelError: 409,
    FoundationError: 409,
    IntegrityError: 422,
    VerificationError: 422,
    DiskFullError: 507,
}
_FORBIDDEN = ErrorAnswer(kind="UsageError", message="the token may read here, not write", hint="ask for one that may")
_UNAUTHORIZED = ErrorAnswer(
    kind="UsageError", message="a valid token for this channel and label is needed", hint="give one that may write"
)


class RefusedError(Exception):
    """The request is answered by ``response`` and by nothing else."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class Guard:
    """Asks the gatekeeper about requests to the routes."""

    def __init__(self, gate: Gatekeeper) -> None:
        self._gate = gate

    def token_of(self, request: Request) -> TokenRecord | None:
        """The valid token of a request, None where it brought none. Raises RefusedError for one that guesses."""
        headers = dict(request.scope["headers"])
        credentials = credentials_of(None, headers.get(b"authorization"), headers.get(b"x-api-key"))
        try:
            record = self._gate.identify(credentials, request.client.host if request.client else "")
        except TooManyGuesses as err:
            answer = ErrorAnswer(kind="UsageError", message="too many wrong tokens came from this address")
            response = answered(answer, 429, headers={"retry-after": str(int(err.wait_s) + 1)})
            raise RefusedError(response) from None
        request.scope["channel_tools.token"] = record.id if record else None
        return record

    def may_write(self, request: Request, channel: str, *labels: str) -> None:
        """Raise RefusedError unless the token of a request may write to all of these labels of the channel."""
        record = self.token_of(request)
        if record is not None and all(self._gate.may(record, "write", channel, label) for label in labels):
            return
        if record is not None and all(self._gate.may(record, "read", channel, label) for label in labels):
            raise RefusedError(answered(_FORBIDDEN, 403))
        raise RefusedError(unauthorized())

    def may_write_somewhere(self, request: Request, channel: str) -> TokenRecord:
        """The token, which may write to some label of the channel; else raises RefusedError, before a body is read."""
        record = self.token_of(request)
        if record is None or not (record.channels is None or channel in record.channels):
            raise RefusedError(unauthorized())
        if record.access != "write":
            raise RefusedError(answered(_FORBIDDEN, 403))
        return record

    def may_see_all(self, request: Request) -> None:
        """Raise RefusedError unless the token is good for all channels."""
        record = self.token_of(request)
        if record is None or record.channels is not None:
            raise RefusedError(unauthorized())


def answered(message: object, status: int = 200, *, headers: dict[str, str] | None = None) -> Response:
    """A message of ours as a response."""
    return Response(encode(message), status, media_type="application/json", headers={**NOT_KEPT, **(headers or {})})


def unauthorized() -> Response:
    """The one refusal of everybody whose token is not right here."""
    response = answered(_UNAUTHORIZED, 401)
    response.raw_headers.extend(CHALLENGE)
    return response


def error_response(error: ChannelToolsError, message: str | None = None) -> Response:
    """An error of ours as a response, with ``message`` in the place of its own."""
    status = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)
    answer = ErrorAnswer(kind=type(error).__name__, message=message or str(error), hint=error.hint)
    return answered(answer, status)
