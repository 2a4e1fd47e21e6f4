# SPDX-License-Identifier: BSD-3-Clause
"""Keys that sign attestations: the builder's private key, and its public half, which is given to others.

A public key is a file, ``attestation-KEYID.json``: the key in securesystemslib's format, and the period in which
attestations signed by it are valid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from securesystemslib.signer import SSlibKey

from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import atomic_path, write_bytes_atomically
from channel_tools.system.keys import SHORT, load_key, new_key
from channel_tools.system.locks import exclusive_lock

if TYPE_CHECKING:
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

_SCHEMA = 1
_NAME = "attestation"
DEFAULT_DAYS = 1095
_LIMIT_BYTES = 1 << 16
_ED25519_KEY = re.compile(r"[0-9a-f]{64}")


class _KeyValue(msgspec.Struct):
    public: str


class _KeyFile(msgspec.Struct):
    schema: int
    keyid: str
    keytype: str
    scheme: str
    keyval: _KeyValue
    valid_from: datetime
    expires: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedKey:
    """A public key whose attestations are valid if they were made between ``valid_from`` and ``expires``."""

    key: SSlibKey
    valid_from: datetime
    expires: datetime

    @property
    def short(self) -> str:
        """The short form of its ID, for messages."""
        return str(self.key.keyid[:SHORT])


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedIdentity:
    """Who must have signed with Sigstore: an identity in a certificate (a URL or e-mail address), and its issuer.

    ``config`` is a client configuration of sigstore-python with the root of trust, None for the public instance's.
    """

    identity: str
    issuer: str
    config: Path | None = None


Trust = Sequence[TrustedKey] | TrustedIdentity
"""Whose attestations are accepted: those of any of these keys, or of an identity."""


def create_key(folder: Path, *, passphrase: bytes | None, days: int, now: datetime) -> Path:
    """Make a folder with a new private key and its public half; returns the private key's file.

    The folder appears atomically, readable by its owner only. Raises UsageError if it already exists, and for more days
    than a date can express.
    """
    if folder.exists():
        raise UsageError(f"{folder}: already exists; keys are never overwritten", hint="choose another folder")
    try:
        expires = now + timedelta(days=days)
    except OverflowError:
        raise UsageError(
            f"a key cannot be valid for {days} days: that is beyond the last date", hint="give fewer"
        ) from None
    with atomic_path(folder, clear_abandoned=True) as temporary:  # which would be a private key
        temporary.mkdir(mode=0o700)
        signer = new_key(temporary, _NAME, passphrase)
        public = _KeyFile(
            schema=_SCHEMA,
            keyid=signer.public_key.keyid,
            keytype=signer.public_key.keytype,
            scheme=signer.public_key.scheme,
            keyval=_KeyValue(public=signer.public_key.keyval["public"]),
            valid_from=now.replace(microsecond=0),
            expires=expires.replace(microsecond=0),
        )
        content = msgspec.json.format(msgspec.json.encode(public, order="sorted"), indent=1)
        write_bytes_atomically(temporary / f"{_NAME}-{signer.public_key.keyid[:SHORT]}.json", content + b"\n")
    return private_key(folder)


def ensure_key(folder: Path, *, now: datetime) -> Path:
    """The private key in a folder; if there is none, one without a passphrase is made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder.with_name(f".{folder.name}.lock"), resource=f"the keys in {folder}", timeout_s=60):
        if not folder.exists():
            return create_key(folder, passphrase=None, days=DEFAULT_DAYS, now=now)
    return private_key(folder)


def private_key(folder: Path) -> Path:
    """The one private key in a folder. Raises UsageError if there is none, or more than one."""
    key_files = sorted(folder.glob("*.pem"))
    if len(key_files) != 1:
        message = f"{folder}: has {len(key_files)} private keys (*.pem); expected one"
        raise UsageError(message, hint="name the key's file with --signing-key")
    return key_files[0]


def open_signer(path: Path, *, passphrase: bytes | None) -> CryptoSigner:
    """The private key in a file, or in a folder that has one. Raises UsageError as load_key and private_key do."""
    return load_key(private_key(path) if path.is_dir() else path, passphrase)


def read_trusted_keys(paths: Sequence[Path]) -> list[TrustedKey]:
    """The public keys in files, and in folders of such files (``*.json``).

    Raises UsageError for a path that does not exist or has no keys, ConfigError for a file that is not a public key.
    """
    files: list[Path] = []
    for path in paths:
        key_files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not key_files or not key_files[0].is_file():
            message = f"{path}: no public key found; expected attestation-KEYID.json or a folder with such files"
            raise UsageError(message, hint="ask those who build the channel for it")
        files += key_files
    return [_read_key(path) for path in files]


def _read_key(path: Path) -> TrustedKey:
    hint = "give the .json file that channel_tools attest create-key wrote, not the private key (.pem)"
    try:
        with path.open("rb") as stream:
            read = decode_json(stream.read(_LIMIT_BYTES), _KeyFile)
    except msgspec.DecodeError as err:
        raise ConfigError(f"not a valid public key: {err}", path=path, hint=hint) from None
    if (read.schema, read.keytype, read.scheme) != (_SCHEMA, "ed25519", "ed25519"):
        message = f"has schema {read.schema}, key type {read.keytype}/{read.scheme}; expected schema {_SCHEMA}, ed25519"
        raise ConfigError(message, path=path, hint=hint)
    if not _ED25519_KEY.fullmatch(read.keyval.public):
        raise ConfigError("its public key is not 64 hexadecimal digits", path=path, hint=hint)
    key = SSlibKey(read.keyid, read.keytype, read.scheme, {"public": read.keyval.public})
    return TrustedKey(key=key, valid_from=_utc(read.valid_from), expires=_utc(read.expires))


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
