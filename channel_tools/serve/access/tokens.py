# SPDX-License-Identifier: BSD-3-Clause
"""Tokens: what each may do, and the file that stores their hashes.

A token is ``ct-ID-SECRET``. The id is not secret: people name a token by it, and its record is found by it without
comparing secrets. The secret has 192 bits from the operating system, so it is enough to store its plain sha256. A token
has only characters that conda accepts in ``/t/TOKEN/``.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.publish.model import is_label
from channel_tools.serve.addresses import CHANNEL_NAME_HINT, is_channel_name
from channel_tools.system.counting import counted
from channel_tools.system.document import convert, decode_json
from channel_tools.system.errors import ConfigError, UsageError, error_from_os
from channel_tools.system.files import atomic_path, check_replaceable, read_regular
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

Access = Literal["read", "write"]

TOKENS_SCHEMA = 1
TOKEN_PATTERN = r"ct-[0-9a-f]{8}-[0-9a-f]{48}"  # noqa: S105 - the form of a token
_TOKEN = re.compile(TOKEN_PATTERN)
_ID_BYTES = 4
_SECRET_BYTES = 24
_FILE_BYTES = 64 << 20
_ID = slice(3, 11)
_PRIVATE_MODE = 0o600
_LOCK_WAIT_S = 30.0
_SPAN = re.compile(r"(\d{1,5})([dh])", re.ASCII)
_LATEST_S = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""The latest expiry: times beyond the year 9999 cannot be displayed."""
_NAME_LIMIT = 200
_ID_PATTERN = re.compile(r"[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNIT_S = {"d": 24 * 3600.0, "h": 3600.0}
_NOBODY = bytes(hashlib.sha256().digest_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRecord:
    """The stored record of a token. ``channels`` and ``labels`` None mean all; ``write`` includes ``read``."""

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
        """Whether it is neither revoked nor expired."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)

    def covers(self, channel: str, label: str) -> bool:
        """Whether the channel and the label are in its scope."""
        return (self.channels is None or channel in self.channels) and (self.labels is None or label in self.labels)


@dataclass(frozen=True, kw_only=True, slots=True)
class _TokensFile:
    schema: int = TOKENS_SCHEMA
    tokens: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenFile:
    """The content of a token file: its valid records, and for each invalid entry a line that says what is wrong."""

    records: tuple[TokenRecord, ...] = ()
    faults: tuple[str, ...] = ()
    entries: tuple[dict[str, object], ...] = ()
    """All entries, as they are in the file."""


class TokenTable:
    """The records of one state of the file, for looking up tokens."""

    def __init__(self, records: tuple[TokenRecord, ...]) -> None:
        self._by_id = {record.id: (bytes.fromhex(record.sha256), record) for record in records}

    def find(self, token: str) -> TokenRecord | None:
        """The record of a token, valid or not; takes the same steps for a wrong secret as for an unknown id."""
        known, record = self._by_id.get(token[_ID], (_NOBODY, None))
        return record if hmac.compare_digest(known, _digest_of(token)) else None


def default_tokens_file(root: Path) -> Path:
    """The default token file for the channels in a folder, at a path that no request can name."""
    return root / RECORD_FOLDER / "tokens.json"


def _digest_of(token: str) -> bytes:
    """The digest that is stored for a token; takes any text, since a request may contain any."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def create_token(
    path: Path,
    *,
    name: str,
    channels: tuple[str, ...] | None,
    labels: tuple[str, ...] | None,
    access: Access,
    expires_s: float | None,
    clock: Callable[[], float],
) -> tuple[str, TokenRecord]:
    """Make a token and store its hash in the file, which is created if missing; returns the token, which is not stored.

    The arguments are those of TokenRecord. Raises UsageError for invalid ones, ConfigError for a damaged file,
    ChannelError while another process has it locked, DiskFullError.
    """
    token = _new_token(frozenset())
    record = TokenRecord(
        id=token[_ID],
        sha256=_digest_of(token).hex(),
        name=name,
        channels=channels,
        labels=labels,
        access=access,
        created_s=clock(),
        expires_s=expires_s,
    )
    if fault := _fault_of(record):
        raise UsageError(f"cannot create the token: {fault}", hint="see channel_tools token create --help")
    with _locked(path):
        token_file = read_token_file(path)
        ids = {str(entry.get("id")) for entry in token_file.entries}
        if record.id in ids:
            token = _new_token(ids)
            record = replace(record, id=token[_ID], sha256=_digest_of(token).hex())
        _write(path, (*token_file.entries, _entry_of(record)))
    return token, record


def _new_token(ids: Collection[str]) -> str:
    """A random token whose id is none of ``ids``: an id names one token in the log, in the list, and for revoke."""
    while (token := f"ct-{secrets.token_hex(_ID_BYTES)}-{secrets.token_hex(_SECRET_BYTES)}")[_ID] in ids:
        pass
    return token


def revoke_token(path: Path, token: str, *, clock: Callable[[], float]) -> TokenRecord:
    """Make a token invalid from now on; its record stays. ``token`` is its id, or its name if no other has it.

    Raises UsageError for an id or name that no token has, and for a name that several have that are not revoked; else
    as create_token.
    """
    with _locked(path):
        token_file = read_token_file(path)
        records = {record.id: record for record in token_file.records}
        token_id = token if token in records else _id_by_name(path, token, token_file.records)
        if records[token_id].revoked_s is None:
            records[token_id] = replace(records[token_id], revoked_s=clock())
            changed = _entry_of(records[token_id])
            _write(path, tuple(changed if entry.get("id") == token_id else entry for entry in token_file.entries))
    return records[token_id]


def _id_by_name(path: Path, name: str, records: Sequence[TokenRecord]) -> str:
    """The id of the token with this name; where it was used again, of the one that is not revoked."""
    named = [record for record in records if record.name == name]
    ids = [record.id for record in named if record.revoked_s is None] or [record.id for record in named[-1:]]
    if len(ids) == 1:
        return ids[0]
    if ids:
        message = f"{path}: {counted(len(ids), 'token')} have the name {name}: {', '.join(ids)}"
        raise UsageError(message, hint="give the ID of one; channel_tools token list shows what each is for")
    # not the text itself: somebody may have given the secret token
    known = ", ".join(f"{record.id} ({record.name})" for record in records) or "none"
    given = "this" if is_token(name) else name
    message = f"{path}: no token has the ID or name {given}; tokens: {known}"
    raise UsageError(message, hint="channel_tools token list shows the IDs and names")


def read_token_file(path: Path) -> TokenFile:
    """Read the file; a missing one is empty. An invalid entry becomes a fault, and the others are still read.

    Raises ConfigError if the file as a whole is damaged, FileAccessError if it may not be read.
    """
    try:
        document = decode_json(read_regular(path, limit_bytes=_FILE_BYTES), _TokensFile)
    except FileNotFoundError:
        return TokenFile()
    except OSError as err:
        raise error_from_os(err) from err
    except ValueError as err:  # msgspec's errors are ValueErrors
        hint = "restore an intact copy, or delete it and create the tokens again"
        raise ConfigError(f"not a valid token file ({err})", path=path, hint=hint) from None
    if document.schema != TOKENS_SCHEMA:
        message = f"has schema {document.schema}; this version of channel_tools reads schema {TOKENS_SCHEMA}"
        raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
    records, faults = [], []
    for number, entry in enumerate(document.tokens, 1):
        try:
            record = convert(entry, TokenRecord)
            fault = _fault_of(record)
        except ValueError as err:
            record, fault = None, str(err)
        if record is not None and not fault:
            records.append(record)
        else:
            faults.append(f"{path}: entry {number} (id {entry.get('id')!r}) is not a valid token: {fault}")
    return TokenFile(records=tuple(records), faults=tuple(faults), entries=document.tokens)


def _fault_of(record: TokenRecord) -> str:
    """What is wrong with a token's record, "" if it is valid."""
    if not _ID_PATTERN.fullmatch(record.id) or not _SHA256.fullmatch(record.sha256):
        return "its id is not 8 hexadecimal digits, or its sha256 not 64"
    if not record.name.isprintable() or not 0 < len(record.name) <= _NAME_LIMIT:
        return f"its name {record.name[:_NAME_LIMIT]!r} is not 1 to {_NAME_LIMIT} printable characters"
    for channel in record.channels or ():
        if not is_channel_name(channel):
            return f"{channel[:_NAME_LIMIT]!r} is not a valid channel name; {CHANNEL_NAME_HINT}"
    for label in record.labels or ():
        if not is_label(label):
            return f"{label[:_NAME_LIMIT]!r} is not a valid label name"
    if record.expires_s is not None and not 0 <= record.expires_s <= _LATEST_S:
        return "it expires after the year 9998; expected an earlier date, or never"
    return ""


def _entry_of(record: TokenRecord) -> dict[str, object]:
    return convert(msgspec.to_builtins(record), dict[str, object])


def is_token(text: str) -> bool:
    """Whether the text has the form of a token."""
    return _TOKEN.fullmatch(text) is not None


def _locked(path: Path) -> AbstractContextManager[None]:
    check_replaceable(path)
    return exclusive_lock(
        path.with_name(f".{path.name}.lock"), resource=f"the token file {path}", timeout_s=_LOCK_WAIT_S
    )


def _write(path: Path, entries: tuple[dict[str, object], ...]) -> None:
    content = msgspec.json.format(msgspec.json.encode(_TokensFile(tokens=entries), order="sorted"), indent=2)
    with atomic_path(path) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content + b"\n")


def parse_expiry(text: str, *, now_s: float) -> float | None:
    """``90d``, ``12h``, ``2030-01-31`` (the end of that day, in UTC) or ``never`` (None) as seconds since the epoch.

    Raises UsageError for anything else and for times in the past.
    """
    if text == "never":
        return None
    span = _SPAN.fullmatch(text)
    expires_s = now_s + int(span[1]) * _UNIT_S[span[2]] if span else _end_of_day(text)
    if expires_s > _LATEST_S:
        raise UsageError(
            f"--expires {text}: is after the year 9998", hint="write never for a token that does not expire"
        )
    if expires_s <= now_s:
        raise UsageError(
            f"--expires {text}: is in the past", hint="give a time in the future: 90d, 12h, a date, or never"
        )
    return expires_s


def _end_of_day(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() + _UNIT_S["d"]
    except ValueError:
        raise UsageError(f"--expires {text}: not a valid time", hint="write 90d, 12h, 2030-01-31 or never") from None
