# SPDX-License-Identifier: BSD-3-Clause
"""The key folder: who signs bundles, and the chain of root metadata that says so.

Root keys sign only root metadata, so they can lie on media that are in no machine; the other three sign every bundle.
A private key is its own file, ``private/ROLE-KEYID.pem`` (PKCS 8, mode 0600, with a passphrase when one is given), and
may be anywhere when a command names the file. The number of the last bundle is kept here, so that none is given twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import MAXYEAR, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root
from tuf.api.serialization import DeserializationError

from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import exclusive_lock, write_bytes_atomically
from channel_tools.system.keys import SHORT, load_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

Role = Literal["root", "targets", "snapshot", "timestamp"]
ROLES: tuple[Role, ...] = ("root", "targets", "snapshot", "timestamp")
SETTINGS = "keys.json"
_SCHEMA = 1


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


def read_root(path: Path) -> Metadata[Root]:
    """Root metadata from a file, its signatures unverified. Raises ConfigError for anything else."""
    try:
        return Metadata[Root].from_bytes(path.read_bytes())
    except (OSError, DeserializationError, RepositoryError, ValueError) as err:
        raise ConfigError(f"is not root metadata: {err}", path=path, hint="restore the file from a copy") from None


def fingerprint(path: Path) -> str:
    """The sha256 of a root metadata file, which importing sites get by another way than the bundle."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
            message = f"{path}: its key {signer.public_key.keyid[:SHORT]} is not one of the {role} keys in force"
            raise UsageError(message, hint="channel_tools mirror keys show names them")
    if files:
        return given
    return [load_key(path, passphrase) for path in _key_files(folder, wanted, role)]


def _key_files(folder: KeyFolder, wanted: Sequence[str], role: Role) -> Iterator[Path]:
    for keyid in wanted:
        path = folder.private / f"{role}-{keyid[:SHORT]}.pem"
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
