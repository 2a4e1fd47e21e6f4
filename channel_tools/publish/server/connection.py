# SPDX-License-Identifier: BSD-3-Clause
"""Requests to a channel_tools server: with time limits, retried if that can help, never redirected.

The token comes from the environment, a file, the address or the user's credentials, and is never printed. Redirects are
not followed, so that it is sent only to the server that it was given for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from channel_tools.conda.addresses import NOT_SENT, is_confidential, is_web, parse_address
from channel_tools.conda.clients import RATTLER_FILE, RATTLER_VARIABLE, split_credential, stored_authorization
from channel_tools.publish.server.protocol import ErrorResponse, encode, from_error_response
from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, NetworkError, UsageError
from channel_tools.system.http.client import TEMPORARY_STATUSES
from channel_tools.system.http.pace import Timeouts, TransientError, retry_after_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.system.http.client import HttpClient, Response

TOKEN_VARIABLE = "CHANNEL_TOOLS_TOKEN"  # noqa: S105 - a name
TOKEN_FILE_VARIABLE = "CHANNEL_TOOLS_TOKEN_FILE"  # noqa: S105
WHERE = (
    f"set {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE} (a file with the token), "
    f"or store it in rattler's credentials ({RATTLER_VARIABLE}, else ~/{RATTLER_FILE}) or .netrc"
)
SERVER_TIMEOUTS = Timeouts(read_s=90.0)
_RESPONSE_S = 300.0
_RESPONSE_LIMIT_BYTES = 16 << 20
_UNAUTHORISED = frozenset({401, 403})
_OUT_OF_STEP = frozenset({"OffsetError", "PartBusyError"})
"""Server errors that mean that it has another part of a file, or is receiving it at the moment."""
_OK_LIMIT = 300

_Message = TypeVar("_Message")


class TemporaryError(NetworkError):
    """The server could not be reached, or is temporarily unavailable."""

    def __init__(self, message: str, *, hint: str | None, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """The address of a server's channel without credentials, and the headers to send with every request."""

    url: str
    authorization: str | None = field(repr=False)


class ServerConnection:
    """Requests to one channel of a server; may be used by several threads."""

    def __init__(self, address: ServerAddress, client: HttpClient) -> None:
        self.address = address.url
        parts = parse_address(address.url)
        if not is_web(address.url) or parts.path.count("/") != 1 or parts.query:
            message = f"{address.url}: not the address of a channel on a server; expected https://HOST/CHANNEL"
            raise UsageError(message, hint="give a label with --label, not in the address")
        self.channel = parts.path[1:]
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._client = client
        self._authorization = {} if address.authorization is None else {"Authorization": address.authorization}

    def ask(self, method: str, path: str, kind: type[_Message], message: object | None = None) -> _Message:
        """Send a message and return the response, asking again a few times while the server is unavailable.

        Raises NetworkError, and what the server reports.
        """
        headers = {} if message is None else {"Content-Type": "application/json"}
        body = None if message is None else encode(message)
        failures = 0
        while True:
            try:
                return self.understood(*self.send_once(method, path, body=body, headers=headers), kind)
            except TemporaryError as err:
                failures += 1
                if self._client.retry.is_last(failures, err.retry_after_s):
                    raise
                self.pause(failures, err.retry_after_s)

    def send_once(
        self, method: str, path: str, *, body: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request; returns the status and body of the response.

        Raises TemporaryError if a retry may succeed, NetworkError for an endless response.
        """
        hint = "run the same command again: what was sent is kept"
        own = {**self._authorization, **(headers or {})}
        try:
            with self._client.open(method, self._base + path, body=body, headers=own, follow=False) as response:
                status, content = response.status, self._read(response)
        except TransientError as err:
            message = f"{self.address}: the server cannot be reached, or stopped responding: {err}"
            raise TemporaryError(message, hint=hint) from None
        if status in TEMPORARY_STATUSES:
            message = f"{self.address}: the server is temporarily unavailable (HTTP status {status})"
            raise TemporaryError(message, hint=hint, retry_after_s=retry_after_s(response.headers))
        return status, content

    def pause(self, failures: int, retry_after_s: float = 0.0) -> None:
        """Wait before another attempt, longer after each failure."""
        time.sleep(self._client.retry.wait_s(failures, retry_after_s))

    def _read(self, response: Response) -> bytes:
        """The body of a response, which is small and complete at once if this is a channel_tools server."""
        deadline_s = time.monotonic() + _RESPONSE_S
        content = b""
        while chunk := response.read1():
            content += chunk
            if len(content) > _RESPONSE_LIMIT_BYTES or time.monotonic() > deadline_s:
                message = f"{self.address}: not a channel_tools server (its response does not end)"
                raise NetworkError(message, hint="give the address of a channel_tools server")
        return content

    def understood(self, status: int, content: bytes, kind: type[_Message]) -> _Message:
        """The message of a response. Raises the error that the server reports, NetworkError if it is not a message."""
        if status in _UNAUTHORISED:
            raise self._unauthorised(status)
        try:
            if status < _OK_LIMIT:
                return decode_json(content, kind)
            error = decode_json(content, ErrorResponse)
        except ValueError:
            response = "a redirect" if status in range(300, 400) else f"HTTP status {status}"
            message = f"{self.address}: not a channel_tools server (got {response} instead of a message of its API)"
            raise NetworkError(message, hint="give the address of a channel_tools server") from None
        if error.kind in _OUT_OF_STEP:
            raise TemporaryError(f"{self.address}: {error.message}", hint=error.hint)
        reported = from_error_response(error)
        raise reported.with_message(f"{self.address}: {reported.message}")

    def _unauthorised(self, status: int) -> UsageError:
        if status == 403:  # noqa: PLR2004
            message = f"{self.address}: the token may only read there"
            return UsageError(message, hint="ask the server's operator for a token with --write")
        if self._authorization:
            message = f"{self.address}: the token is not valid for this channel and label"
            return UsageError(message, hint="it may be for another one, expired or revoked; ask the server's operator")
        hint = WHERE if is_confidential(self.address) else f"{WHERE}; {NOT_SENT}"
        return UsageError(f"{self.address}: a token is required", hint=hint)


def server_address(address: str, environ: Mapping[str, str]) -> ServerAddress:
    """The address of a channel on a server, with the credentials found for it, if any.

    They are looked up in this order: CHANNEL_TOOLS_TOKEN, the file named by CHANNEL_TOOLS_TOKEN_FILE, the address
    itself, rattler's credentials, .netrc (the last two not for plain http addresses of other machines).
    Raises ConfigError if a named file cannot be read.
    """
    plain, credential = split_credential(address)
    plain = plain.rstrip("/")
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return ServerAddress(url=plain, authorization=f"Bearer {token}")
    if file := environ.get(TOKEN_FILE_VARIABLE, ""):
        return ServerAddress(url=plain, authorization=f"Bearer {_read_token(Path(file))}")
    if credential is not None:
        return ServerAddress(url=plain, authorization=credential.authorization)
    return ServerAddress(url=plain, authorization=stored_authorization(plain, environ))


def _read_token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "not a token"
        message = f"named by {TOKEN_FILE_VARIABLE}, cannot be read: {reason}"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else") from None
    if not token or any(character.isspace() for character in token):
        message = f"named by {TOKEN_FILE_VARIABLE}, does not contain a token"
        raise ConfigError(message, path=path, hint="write the token into it, and nothing else")
    return token
