# SPDX-License-Identifier: BSD-3-Clause
"""Who may do what: the credentials of a request against the file of tokens.

Every refusal looks the same, whatever its reason: no token, an unknown, expired, revoked or foreign one, a channel that
does not exist. The file is looked at (its size and times) on every request, so a revocation holds at once.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from channel_tools.errors import ConfigError
from channel_tools.publish.model import MAIN_LABEL
from channel_tools.serve.tokens import TokenTable, digest_of, id_of, is_token, read_tokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from channel_tools.serve.tokens import Access, TokenRecord

_log = logging.getLogger(__name__)
_TOKEN_LENGTH_LIMIT = 256
_GUESSES_LIMIT = 10_000
_Signature = tuple[int, int, int] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """What a request brought; ``tokens`` are candidates, of which a Basic form has two."""

    tokens: tuple[str, ...] = ()


NO_CREDENTIALS = Credentials()


@dataclass(frozen=True, kw_only=True, slots=True)
class Public:
    """Channels and labels that everybody may read."""

    places: frozenset[tuple[str, str]] = frozenset()

    def covers(self, channel: str, label: str) -> bool:
        """Whether this label of the channel is declared public."""
        return (channel, label) in self.places


def parse_public(names: tuple[str, ...]) -> Public:
    """``CHANNEL`` (its label main) or ``CHANNEL/LABEL``."""
    pairs = (name.partition("/") for name in names)
    return Public(places=frozenset((channel, label or MAIN_LABEL) for channel, _slash, label in pairs))


def credentials_of(path_token: str | None, authorization: bytes | None, api_key: bytes | None) -> Credentials:
    """What the path, else ``Authorization`` (Bearer, Basic, or quetz's bare key), else ``X-API-Key`` bring."""
    if path_token is not None:
        return Credentials(tokens=(path_token,))
    if authorization is not None:
        return Credentials(tokens=_authorization_tokens(authorization))
    return NO_CREDENTIALS if api_key is None else Credentials(tokens=(_text(api_key),))


def _authorization_tokens(value: bytes) -> tuple[str, ...]:
    scheme, _space, rest = value.strip().partition(b" ")
    kind = scheme.lower()
    if kind in {b"bearer", b"token"}:
        return (_text(rest.strip()),)
    if kind != b"basic":
        return ()
    try:
        user, _colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
    except binascii.Error:
        return ()
    return tuple(_text(part) for part in (password, user) if part)


def _text(value: bytes) -> str:
    return value[: _TOKEN_LENGTH_LIMIT + 1].decode("latin-1")


@dataclass(kw_only=True, slots=True)
class GuessLimit:
    """How many secrets an address may try for one id: ``burst`` at once, one more every ``seconds_each``."""

    burst: int = 20
    seconds_each: float = 3.0
    clock: Callable[[], float] = time.monotonic
    _until: dict[tuple[str, str], float] = field(default_factory=dict)

    def wait_s(self, address: str, token_id: str) -> float:
        """How long the address has to wait before it may try the id again; 0 when it need not."""
        until = self._until.get((address, token_id))
        return 0.0 if until is None else max(0.0, until - self.clock() - self.burst * self.seconds_each)

    def wrong(self, address: str, token_id: str) -> None:
        """Count a wrong secret."""
        until = self._until.pop((address, token_id), 0.0)
        if len(self._until) >= _GUESSES_LIMIT:
            del self._until[next(iter(self._until))]  # the one that was tried longest ago
        self._until[address, token_id] = max(until, self.clock()) + self.seconds_each


class TooManyGuesses(Exception):  # noqa: N818 - an answer, no error of ours
    """The address tried too many wrong secrets for an id; it may come again after ``wait_s``."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Gatekeeper:
    """Decides on every request of one server process; not for several threads."""

    def __init__(
        self,
        tokens_file: Path,
        public: Public,
        *,
        limit: GuessLimit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = tokens_file
        self._public = public
        self._limit = limit or GuessLimit()
        self._clock = clock
        self._signature: _Signature = (-1, -1, -1)
        self._table = TokenTable(())
        self._proven: dict[bytes, TokenRecord] = {}

    def is_public(self, channel: str, label: str) -> bool:
        """Whether the label may be read without a token."""
        return self._public.covers(channel, label)

    def identify(self, credentials: Credentials, address: str) -> TokenRecord | None:
        """The valid token that a request from ``address`` brought, of whatever scope; None when there is none.

        Raises TooManyGuesses instead of looking at a secret for whose id the address is over its limit, unless that
        very token was right before. An expired or revoked token is no guess: its secret is right.
        """
        self._refresh()
        for token in credentials.tokens:
            record = self._find(token, address)
            if record is not None and record.is_valid(self._clock()):
                return record
        return None

    def _find(self, token: str, address: str) -> TokenRecord | None:
        digest = digest_of(token)
        if (proven := self._proven.get(digest)) is not None:
            return proven
        if not is_token(token):
            return None
        if (wait_s := self._limit.wait_s(address, id_of(token))) > 0:
            raise TooManyGuesses(wait_s)
        record = self._table.find(token, digest)
        if record is None:
            self._limit.wrong(address, id_of(token))
        else:
            self._proven[digest] = record
        return record

    def may(self, record: TokenRecord | None, access: Access, channel: str, label: str) -> bool:
        """Whether a token, or nobody, may read or write the label of the channel."""
        if access == "read" and self._public.covers(channel, label):
            return True
        if record is None or not record.covers(channel, label):
            return False
        return access == "read" or record.access == "write"

    def _refresh(self) -> None:
        signature = _signature_of(self._file)
        if signature == self._signature:
            return
        try:
            self._table = TokenTable(read_tokens(self._file))
        except ConfigError as err:
            self._table = TokenTable(())
            _log.error("%s; every token is refused until it is mended", err)
        self._signature, self._proven = signature, {}


def _signature_of(path: Path) -> _Signature:
    try:
        status = os.stat(path)  # noqa: PTH116 - on every request
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
