# SPDX-License-Identifier: BSD-3-Clause
"""Tokens: what each may do, and the file that keeps their hashes.

A token is ``ct-ID-SECRET``. The id is no secret: it is how people name a token, and how its record is found without
comparing anything. The secret has 192 bits from the operating system, so that a plain sha256 is enough to keep. Only
characters that conda takes for a part of ``/t/TOKEN/`` occur.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.errors import ConfigError, UsageError
from channel_tools.files import atomic_path
from channel_tools.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

Access = Literal["read", "write"]

TOKENS_SCHEMA = 1
TOKEN_PATTERN = r"ct-[0-9a-f]{8}-[0-9a-f]{48}"  # noqa: S105 - what one looks like
_TOKEN = re.compile(TOKEN_PATTERN)
_ID_BYTES = 4
_SECRET_BYTES = 24
_ID = slice(3, 11)
_PRIVATE_MODE = 0o600
_LOCK_WAIT_S = 30.0
_NOBODY = bytes(hashlib.sha256().digest_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRecord:
    """What is kept of a token. ``channels`` and ``labels`` None mean all; ``write`` includes ``read``."""

    id: str
    sha256: str
    name: str
    channels: tuple[str, ...] | None
    labels: tuple[str, ...] | None
    access: Access
    created_s: float
    expires_s: float | None
    revoked_s: float | None = None

    def is_valid(self, now_s: float) -> bool:
        """Neither revoked nor expired."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)

    def covers(self, channel: str, label: str) -> bool:
        """Whether the channel and the label are in its scope."""
        return (self.channels is None or channel in self.channels) and (self.labels is None or label in self.labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRequest:
    """A token that somebody wants: as TokenRecord."""

    name: str
    channels: tuple[str, ...] | None
    labels: tuple[str, ...] | None
    access: Access
    expires_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _TokensFile:
    schema: int = TOKENS_SCHEMA
    tokens: tuple[TokenRecord, ...] = ()


class TokenTable:
    """The records of one state of the file, for looking tokens up."""

    def __init__(self, records: tuple[TokenRecord, ...]) -> None:
        self._by_id = {record.id: (bytes.fromhex(record.sha256), record) for record in records}

    def find(self, token: str, digest: bytes) -> TokenRecord | None:
        """The record of a token, whatever its state; takes the same steps for a wrong secret and for an unknown id."""
        known, record = self._by_id.get(token[_ID], (_NOBODY, None))
        return record if hmac.compare_digest(known, digest) else None


def digest_of(token: str) -> bytes:
    """What is kept of a token; of any text, since a request may bring any."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def create_token(path: Path, request: TokenRequest, *, clock: Callable[[], float]) -> tuple[str, TokenRecord]:
    """Make a token and keep its hash in the file, which is made where there is none; returns the token, once.

    Raises ConfigError for a damaged file, ChannelError while another process keeps it locked, DiskFullError.
    """
    token = f"ct-{secrets.token_hex(_ID_BYTES)}-{secrets.token_hex(_SECRET_BYTES)}"
    record = TokenRecord(
        id=token[_ID],
        sha256=digest_of(token).hex(),
        name=request.name,
        channels=request.channels,
        labels=request.labels,
        access=request.access,
        created_s=clock(),
        expires_s=request.expires_s,
    )
    with _locked(path):
        _write(path, (*read_tokens(path), record))
    return token, record


def revoke_token(path: Path, token_id: str, *, clock: Callable[[], float]) -> TokenRecord:
    """Make a token useless from now on; its record stays. Raises UsageError for an unknown id, else as create_token."""
    with _locked(path):
        records = {record.id: record for record in read_tokens(path)}
        if token_id not in records:
            known = ", ".join(sorted(records)) or "none"
            raise UsageError(f"{path}: no token {token_id}; there are: {known}", hint="see channel_tools token list")
        if records[token_id].revoked_s is None:
            records[token_id] = replace(records[token_id], revoked_s=clock())
            _write(path, tuple(records.values()))
    return records[token_id]


def read_tokens(path: Path) -> tuple[TokenRecord, ...]:
    """The records of the file, none where there is no file. Raises ConfigError when it cannot be read."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_TokensFile)
        for record in document.tokens:
            bytes.fromhex(record.sha256)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as err:  # msgspec's errors are ValueErrors
        hint = "put a sound copy back, or delete it and create the tokens anew"
        raise ConfigError(f"not a file of tokens ({err})", path=path, hint=hint) from None
    if document.schema != TOKENS_SCHEMA:
        message = f"has schema {document.schema}; this version of channel_tools reads schema {TOKENS_SCHEMA}"
        raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
    return document.tokens


def id_of(token: str) -> str:
    """The part of a token that is no secret."""
    return token[_ID]


def is_token(text: str) -> bool:
    """Whether the text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def _locked(path: Path) -> AbstractContextManager[None]:
    return exclusive_lock(path.with_name(f".{path.name}.lock"), what=f"the tokens {path}", timeout_s=_LOCK_WAIT_S)


def _write(path: Path, records: tuple[TokenRecord, ...]) -> None:
    content = msgspec.json.format(msgspec.json.encode(_TokensFile(tokens=records), order="sorted"), indent=2)
    with atomic_path(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content + b"\n")
