# SPDX-License-Identifier: BSD-3-Clause
"""Requests to our server: bounded in time, tried again where that can help, never sent elsewhere.

urllib3 and not urllib: it sends a file from where it is, keeps connections for reuse, and tells a stalled peer from a
slow one. Redirects are not followed, so that a token goes to no other place than the one it was given for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from channel_tools import __version__
from channel_tools.errors import NetworkError, UsageError
from channel_tools.publish.credentials import WHERE, ServerAddress
from channel_tools.publish.wire import ErrorAnswer, decode, encode, from_error_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CONNECT_S = 15.0
_SILENCE_S = 90.0
_ANSWER_S = 300.0
_ATTEMPTS = 5
_ANSWER_LIMIT_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 18
_CONNECTIONS = 8
_TEMPORARY = frozenset({429, 500, 502, 503, 504})
_REFUSED = frozenset({401, 403})
_OUT_OF_STEP = frozenset({"OffsetError", "PartBusyError"})
"""Errors of the server that say that it has another part of a file, or is getting it right now."""
_OK_LIMIT = 300

_Message = TypeVar("_Message")


class TemporaryError(NetworkError):
    """The server could not be reached, or says that it cannot answer now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes


class ServerConnection:
    """Requests to one channel of a server; may be used by several threads."""

    def __init__(
        self, address: ServerAddress, *, sleep: Callable[[float], None] = time.sleep, silence_s: float = _SILENCE_S
    ) -> None:
        """``silence_s`` is how long the server may say nothing."""
        self.address = address.url
        parts = urlsplit(address.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.count("/") != 1 or parts.query:
            message = f"{address.url}: no channel of a server; expected https://HOST/CHANNEL"
            raise UsageError(message, hint="labels are named by --label and not in the address")
        self.channel = parts.path[1:]
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._sleep = sleep
        self._headers = {"User-Agent": f"channel_tools/{__version__}"}
        if address.authorization is not None:
            self._headers["Authorization"] = address.authorization
        self._has_token = address.authorization is not None
        timeout = urllib3.Timeout(connect=_CONNECT_S, read=silence_s)
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS, timeout=timeout, retries=False, blocksize=_BLOCK_BYTES, block=False
        )

    def ask(self, method: str, path: str, kind: type[_Message], message: object | None = None) -> _Message:
        """Send a message and return the answer, asking again a few times while the server cannot answer.

        Raises NetworkError, and what the server says is wrong.
        """
        headers = {} if message is None else {"Content-Type": "application/json"}
        body = None if message is None else encode(message)
        for attempt in range(_ATTEMPTS):
            try:
                return self.understood(self.send_once(method, path, body=body, headers=headers), kind)
            except TemporaryError:
                if attempt == _ATTEMPTS - 1:
                    raise
                self.pause(attempt)
        raise AssertionError("unreachable")

    def send_once(
        self, method: str, path: str, *, body: bytes | IO[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request. Raises TemporaryError when it may go better another time, NetworkError for no answer of ours."""
        try:
            response = self._pool.request(
                method,
                self._base + path,
                body=body,
                headers={**self._headers, **(headers or {})},
                redirect=False,
                preload_content=False,
            )
            try:
                content = self._read(response)
            finally:
                response.release_conn()
        except (HTTPError, OSError) as err:
            message = f"{self.address}: the server cannot be reached, or stopped answering: {_reason(err)}"
            raise TemporaryError(message, hint="run the same command again: what was sent is kept") from None
        if response.status in _TEMPORARY:
            message = f"{self.address}: the server cannot answer now (HTTP status {response.status})"
            raise TemporaryError(message, hint="run the same command again: what was sent is kept")
        return Answer(status=response.status, body=content)

    def pause(self, attempt: int) -> None:
        """Wait before another attempt, longer each time."""
        self._sleep(min(8.0, 0.25 * 2**attempt))

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The body of an answer, which is small and comes at once where the server is ours."""
        deadline_s = time.monotonic() + _ANSWER_S
        content = b""
        while chunk := response.read1(_BLOCK_BYTES):
            content += chunk
            if len(content) > _ANSWER_LIMIT_BYTES or time.monotonic() > deadline_s:
                raise NetworkError(f"{self.address}: the answer has no end; this is no server of channel_tools")
        return content

    def understood(self, answer: Answer, kind: type[_Message]) -> _Message:
        """The message of an answer. Raises the error that the server tells, NetworkError for what is none of ours."""
        if answer.status in _REFUSED:
            raise self._refusal(answer)
        try:
            if answer.status < _OK_LIMIT:
                return decode(answer.body, kind)
            error = decode(answer.body, ErrorAnswer)
        except ValueError:
            what = "a redirect" if answer.status in range(300, 400) else f"HTTP status {answer.status}"
            message = f"{self.address}: answers with {what}, which is not how a server of channel_tools answers"
            raise NetworkError(message, hint="give the address at which channel_tools serve is reached") from None
        if error.kind in _OUT_OF_STEP:
            raise TemporaryError(f"{self.address}: {error.message}", hint=error.hint)
        told = from_error_answer(error)
        raise type(told)(f"{self.address}: {told.message}", hint=told.hint)

    def _refusal(self, answer: Answer) -> UsageError:
        if answer.status == 403:  # noqa: PLR2004
            message = f"{self.address}: the token may read there and not write"
            return UsageError(message, hint="ask who runs the server for one with --write")
        if self._has_token:
            message = f"{self.address}: the token is not valid for this channel and label"
            return UsageError(message, hint="it may be for another one, expired or revoked; ask who runs the server")
        return UsageError(f"{self.address}: a token is needed", hint=WHERE)


def _reason(err: Exception) -> str:
    """The words of an error, without an address in them."""
    reason: Any = getattr(err, "reason", None) or err
    return str(reason).rpartition(": ")[2] or type(err).__name__
