# SPDX-License-Identifier: BSD-3-Clause
"""The key folder: who signs bundles, and the chain of root metadata that says so.

Root keys sign only root metadata, so they can lie on media that are in no machine; the other three sign every bundle.
A private key is its own file, ``private/ROLE-KEYID.pem`` (PKCS 8, mode 0600, with a passphrase when one is given), and
may be anywhere when a command names the file. The number of the last bundle is kept here, so that none is given twice.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from datetime import MAXYEAR, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from securesystemslib.signer import CryptoSigner, SSlibKey
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root
from tuf.api.serialization import DeserializationError

from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import exclusive_lock, read_first_line, write_bytes_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

Role = Literal["root", "targets", "snapshot", "timestamp"]
ROLES: tuple[Role, ...] = ("root", "targets", "snapshot", "timestamp")
SETTINGS = "keys.json"
_SCHEMA = 1
_SHORT = 16
_PRIVATE_MODE = 0o600


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySettings:
    """keys.json: for how many days metadata of each role counts, and the number of the last bundle."""

    expiry_days: dict[Role, int]
    issued: int = 0
    schema: int = _SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyFolder:
    """A folder that ``create_keys`` made."""

    path: Path

    @property
    def metadata(self) -> Path:
        """``N.root.json``, from 1 on without gaps."""
        return self.path / "metadata"

    @property
    def private(self) -> Path:
        """Where private keys are looked for unless a command names their files."""
        return self.path / "private"

    @property
    def pending(self) -> Path:
        """New root metadata that still lacks signatures."""
        return self.path / "pending.root.json"

    def locked(self) -> AbstractContextManager[None]:
        """Hold the folder against other commands that would sign or rotate."""
        return exclusive_lock(self.path / ".lock", what=f"the key folder {self.path}")

    def root_files(self) -> list[Path]:
        """The chain of root metadata, oldest first. Raises UsageError where there is none, ConfigError for a gap."""
        found = {int(path.name.partition(".")[0]): path for path in self.metadata.glob("*.root.json")}
        if not found:
            hint = "channel_tools mirror keys create makes it; --keys names another"
            raise UsageError(f"{self.path}: not a key folder: metadata/1.root.json is missing", hint=hint)
        if sorted(found) != list(range(1, len(found) + 1)):
            message = f"has the versions {', '.join(map(str, sorted(found)))}; expected all from 1 to {len(found)}"
            raise ConfigError(message, path=self.metadata, hint="restore the folder from a copy")
        return [found[version] for version in sorted(found)]

    def root(self) -> Metadata[Root]:
        """The newest root metadata. Raises as root_files, ConfigError for a file that is not root metadata."""
        return read_root(self.root_files()[-1])

    def settings(self) -> KeySettings:
        """keys.json. Raises ConfigError when it is missing, damaged or of another schema."""
        path = self.path / SETTINGS
        hint = (
            "restore the folder from a copy; a lost number of the last bundle stands in the last bundle's bundle.json"
        )
        try:
            settings = decode_json(path.read_bytes(), KeySettings)
        except (OSError, msgspec.DecodeError) as err:
            raise ConfigError(f"cannot be read: {err}", path=path, hint=hint) from None
        if settings.schema != _SCHEMA:
            message = f"has schema {settings.schema}; this version of channel_tools reads {_SCHEMA}"
            raise ConfigError(message, path=path, hint="use the version of channel_tools that wrote it")
        return settings

    def write_settings(self, settings: KeySettings) -> None:
        """Replace keys.json."""
        content = msgspec.json.format(msgspec.json.encode(settings, order="sorted"), indent=1)
        write_bytes_atomically(self.path / SETTINGS, content + b"\n")

    def take_version(self) -> int:
        """The number of the next bundle, never given again. Raises ChannelError while another command holds the folder.

        It is taken before anything is signed, so that two different bundles never carry the same one.
        """
        with self.locked():
            settings = self.settings()
            self.write_settings(replace(settings, issued=settings.issued + 1))
            return settings.issued + 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """With what a bundle is signed, and when."""

    folder: KeyFolder
    keys: Mapping[Role, Sequence[CryptoSigner]]
    expiry_days: Mapping[Role, int]
    now: datetime

    def expires(self, role: Role) -> datetime:
        """When metadata of the role that is signed now expires."""
        return expiry(self.now, self.expiry_days[role])

    @property
    def last_day(self) -> str:
        """The day after which importing sites reject what is signed now."""
        return min(self.expires(role).date().isoformat() for role in ROLES[1:])


def expiry(now: datetime, days: int) -> datetime:
    """When metadata that is signed now expires, to the second as TUF has it.

    Raises UsageError for more days than a date has room for.
    """
    try:
        return (now + timedelta(days=days)).replace(microsecond=0)
    except OverflowError:
        message = f"metadata cannot count for {days} days: its last day would be after the year {MAXYEAR}"
        raise UsageError(message, hint="give fewer with --expires-days or --root-expires-days") from None


def check_expiry_days(now: datetime, days: Mapping[Role, int]) -> None:
    """Raise UsageError as expiry does, for any role: to be called before anything is written."""
    for role in ROLES:
        expiry(now, days[role])


def open_signing(folder: KeyFolder, *, passphrase: bytes | None, expires_days: int | None, now: datetime) -> Signing:
    """The keys that sign a bundle; ``expires_days`` replaces the folder's own.

    Raises as signing_keys, KeyFolder and expiry.
    """
    folder.root_files()
    days: Mapping[Role, int] = folder.settings().expiry_days
    if expires_days is not None:
        days = dict.fromkeys(days, expires_days)
    check_expiry_days(now, days)
    return Signing(folder=folder, keys=signing_keys(folder, passphrase=passphrase), expiry_days=days, now=now)


def read_passphrase(path: Path | None) -> bytes | None:
    """The first line of a file. Raises UsageError when it is empty, and as read_first_line."""
    if path is None:
        return None
    passphrase = read_first_line(path).strip()
    if not passphrase:
        raise UsageError(f"{path}: its first line is empty; expected a passphrase")
    return passphrase


def read_root(path: Path) -> Metadata[Root]:
    """Root metadata from a file, its signatures unverified. Raises ConfigError for anything else."""
    try:
        return Metadata[Root].from_bytes(path.read_bytes())
    except (OSError, DeserializationError, RepositoryError, ValueError) as err:
        raise ConfigError(f"is not root metadata: {err}", path=path, hint="restore the file from a copy") from None


def fingerprint(path: Path) -> str:
    """The sha256 of a root metadata file, which importing sites get by another way than the bundle."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def new_key(folder: Path, role: Role, passphrase: bytes | None) -> CryptoSigner:
    """Make a key and write it to ``folder``, encrypted when there is a passphrase."""
    signer = CryptoSigner.generate_ed25519()
    key = load_pem_private_key(signer.private_bytes, None)
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{role}-{signer.public_key.keyid[:_SHORT]}.pem"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    return signer


def load_key(path: Path, passphrase: bytes | None) -> CryptoSigner:
    """The key in a file. Raises UsageError for a missing or wrong passphrase and for a file that holds no such key."""
    hint = "name the file that holds its passphrase with --passphrase-file"
    try:
        key = load_pem_private_key(path.read_bytes(), passphrase)
    except TypeError:
        if passphrase is None:
            raise UsageError(f"{path}: the key is encrypted, and no passphrase was given", hint=hint) from None
        return load_key(path, None)  # a passphrase for other keys, which this one does not need
    except ValueError as err:
        if passphrase is not None and b"ENCRYPTED" in path.read_bytes():
            raise UsageError(f"{path}: the passphrase is wrong", hint=hint) from None
        raise UsageError(f"{path}: holds no private key: {err}", hint="restore it from a copy") from None
    except (OSError, UnsupportedAlgorithm) as err:
        raise UsageError(f"{path}: cannot be read as a private key: {err}", hint="restore it from a copy") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: holds another kind of key; expected ed25519", hint="take a key made by mirror keys")
    return CryptoSigner(key, SSlibKey.from_crypto(key.public_key()))


def signers(
    folder: KeyFolder, root: Root, role: Role, *, files: Sequence[Path] = (), passphrase: bytes | None
) -> list[CryptoSigner]:
    """The keys of ``role`` that are at hand, in ``files`` or else in the folder.

    Raises UsageError when a file given holds a key that the role does not have, and as load_key.
    """
    wanted = root.roles[role].keyids
    given = [load_key(path, passphrase) for path in files]
    for path, signer in zip(files, given, strict=True):
        if signer.public_key.keyid not in wanted:
            message = f"{path}: its key {signer.public_key.keyid[:_SHORT]} is not one of the {role} keys in force"
            raise UsageError(message, hint="channel_tools mirror keys show names them")
    if files:
        return given
    return [load_key(path, passphrase) for path in _key_files(folder, wanted, role)]


def _key_files(folder: KeyFolder, wanted: Sequence[str], role: Role) -> Iterator[Path]:
    for keyid in wanted:
        path = folder.private / f"{role}-{keyid[:_SHORT]}.pem"
        if path.is_file():
            yield path


def signing_keys(folder: KeyFolder, *, passphrase: bytes | None) -> dict[Role, list[CryptoSigner]]:
    """The keys that sign bundles, for each role but root as many as it needs.

    Raises UsageError when keys are not at hand, and as load_key.
    """
    root = folder.root().signed
    found: dict[Role, list[CryptoSigner]] = {}
    for role in ROLES[1:]:
        found[role] = signers(folder, root, role, passphrase=passphrase)
        if len(found[role]) < root.roles[role].threshold:
            message = f"{folder.private}: {len(found[role])} of {root.roles[role].threshold} {role} keys are there"
            hint = "put the key's file back, or give the role a new key: channel_tools mirror keys rotate"
            raise UsageError(message, hint=hint)
    return found
