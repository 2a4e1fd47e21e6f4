# SPDX-License-Identifier: BSD-3-Clause
"""The key folder: the keys that sign bundles, the chain of root metadata that names them, and changing keys.

Root keys sign only root metadata, so they can be kept offline; the other three keys sign every bundle. Each private key
is a separate file, ``private/ROLE-KEYID.pem`` (PKCS 8, mode 0600, with a passphrase if one is given), or any other file
that a command names. The number of the last bundle is kept here, so that no number is used twice.

Each new root metadata is signed by the old root keys and by the new ones; importing sites follow that chain, so they
need a fingerprint only once. If the root keys of several people are required, the new metadata waits in
``pending.root.json`` until enough of them have signed it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import MAXYEAR, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec
from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root
from tuf.api.metadata import Role as TufRole
from tuf.api.serialization import DeserializationError

from channel_tools.system.document import decode_json
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.files import atomic_path, write_bytes_atomically
from channel_tools.system.keys import SHORT, load_key, new_key
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.settings import user_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner


Role = Literal["root", "targets", "snapshot", "timestamp"]
ROLES: tuple[Role, ...] = ("root", "targets", "snapshot", "timestamp")
SETTINGS = "keys.json"
_SCHEMA = 1
DEFAULT_EXPIRY_DAYS: dict[Role, int] = {"root": 1095, "targets": 180, "snapshot": 180, "timestamp": 180}
"""Long enough for a medium to be delivered and imported; an importing site rejects older metadata as frozen."""
_ROOT_KEYS_AT_MOST = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySettings:
    """keys.json: for how many days the metadata of each role is valid, and the number of the last bundle."""

    expiry_days: dict[Role, int]
    issued: int = 0
    schema: int = _SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyFolder:
    """A folder that ``create_keys`` made."""

    path: Path

    @property
    def metadata(self) -> Path:
        """The folder with ``N.root.json``, from 1 on without gaps."""
        return self.path / "metadata"

    @property
    def private(self) -> Path:
        """The folder for private keys, unless a command names their files."""
        return self.path / "private"

    @property
    def pending(self) -> Path:
        """The file for new root metadata that still lacks signatures."""
        return self.path / "pending.root.json"

    def locked(self) -> AbstractContextManager[None]:
        """Lock the folder against other commands that sign or rotate."""
        return exclusive_lock(self.path / ".lock", resource=f"the key folder {self.path}")

    def root_files(self) -> list[Path]:
        """The chain of root metadata, oldest first. Raises UsageError if there is none, ConfigError for a gap."""
        by_version = {int(path.name.partition(".")[0]): path for path in self.metadata.glob("*.root.json")}
        if not by_version:
            hint = "make it with channel_tools mirror keys create, or give another with --keys"
            raise UsageError(f"{self.path}: not a key folder: metadata/1.root.json is missing", hint=hint)
        if sorted(by_version) != list(range(1, len(by_version) + 1)):
            message = (
                f"has the versions {', '.join(map(str, sorted(by_version)))}; expected all from 1 to {len(by_version)}"
            )
            raise ConfigError(message, path=self.metadata, hint="restore the folder from a copy")
        return [by_version[version] for version in sorted(by_version)]

    def root(self) -> Metadata[Root]:
        """The newest root metadata. Raises as root_files, and ConfigError for a file that is not root metadata."""
        return read_root(self.root_files()[-1])

    def settings(self) -> KeySettings:
        """Read keys.json. Raises ConfigError if it is missing, damaged or has another schema."""
        path = self.path / SETTINGS
        hint = "restore the folder from a copy; the number of the last bundle is also in that bundle's bundle.json"
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
        """Take the number of the next bundle, once. Raises ChannelError while another command has locked the folder.

        It is taken before anything is signed, so that two different bundles never have the same number.
        """
        with self.locked():
            settings = self.settings()
            self.write_settings(replace(settings, issued=settings.issued + 1))
            return settings.issued + 1


def key_folder(path: Path | None) -> KeyFolder:
    """The key folder of a command: the given one, else the user's own."""
    return KeyFolder(path=user_folder("config") / "mirror-keys" if path is None else path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signing:
    """The keys that sign a bundle, and the time."""

    folder: KeyFolder
    keys: Mapping[Role, Sequence[CryptoSigner]]
    expiry_days: Mapping[Role, int]
    now: datetime

    def expires(self, role: Role) -> datetime:
        """When metadata of the role expires if it is signed now."""
        return expiry(self.now, self.expiry_days[role])

    @property
    def last_day(self) -> str:
        """The day after which importing sites reject what is signed now."""
        return min(self.expires(role).date().isoformat() for role in ROLES[1:])


def expiry(now: datetime, days: int) -> datetime:
    """When metadata that is signed now expires, to the second, as in TUF.

    Raises UsageError for more days than a date can express.
    """
    try:
        return (now + timedelta(days=days)).replace(microsecond=0)
    except OverflowError:
        message = f"metadata cannot be valid for {days} days: it would expire after the year {MAXYEAR}"
        raise UsageError(message, hint="give fewer days with --expires-days or --root-expires-days") from None


def check_expiry_days(now: datetime, days: Mapping[Role, int]) -> None:
    """Raise UsageError as expiry does, for any role; call it before anything is written."""
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
    """Root metadata from a file, with signatures unverified. Raises ConfigError for anything else."""
    try:
        return Metadata[Root].from_bytes(path.read_bytes())
    except (OSError, DeserializationError, RepositoryError, ValueError) as err:
        raise ConfigError(
            f"is not valid root metadata: {err}", path=path, hint="restore the file from a copy"
        ) from None


def fingerprint(path: Path) -> str:
    """The sha256 of a root metadata file, which importing sites get separately from the bundle."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def signing_keys(folder: KeyFolder, *, passphrase: bytes | None) -> dict[Role, list[CryptoSigner]]:
    """The keys that sign bundles: for each role except root, as many as it needs.

    Raises UsageError if keys are missing, and as load_key.
    """
    root = folder.root().signed
    keys: dict[Role, list[CryptoSigner]] = {}
    for role in ROLES[1:]:
        paths = [folder.private / f"{role}-{keyid[:SHORT]}.pem" for keyid in root.roles[role].keyids]
        keys[role] = [load_key(path, passphrase) for path in paths if path.is_file()]
        if len(keys[role]) < root.roles[role].threshold:
            message = (
                f"{folder.private}: has {len(keys[role])} of the {root.roles[role].threshold} required {role} keys"
            )
            hint = "put the key's file back, or give the role a new key: channel_tools mirror keys rotate"
            raise UsageError(message, hint=hint)
    return keys


@dataclass(frozen=True, kw_only=True, slots=True)
class RootState:
    """The current root metadata, and what a pending one lacks (None: there is none)."""

    version: int
    fingerprint: str
    first_fingerprint: str
    expires: str
    threshold: int
    keyids: dict[Role, tuple[str, ...]]
    pending: str | None


def create_keys(
    path: Path,
    *,
    root_keys: int,
    threshold: int,
    expiry_days: Mapping[Role, int],
    passphrase: bytes | None,
    now: datetime,
) -> KeyFolder:
    """Make a key folder with ``root_keys`` root keys, of which ``threshold`` must sign, and a key per other role.

    The folder appears atomically. Raises UsageError if it exists, for too many keys, for a threshold that cannot be
    met, and as expiry.
    """
    _check_counts(threshold, root_keys)
    if path.exists():
        hint = "change keys with channel_tools mirror keys rotate, or give another folder with --keys"
        raise UsageError(f"{path}: already exists; keys are never overwritten", hint=hint)
    days = {**DEFAULT_EXPIRY_DAYS, **expiry_days}
    check_expiry_days(now, days)
    with atomic_path(path, clear_abandoned=True) as temporary:  # which would be private keys
        folder = KeyFolder(path=temporary)
        folder.path.mkdir(mode=0o700)
        root = Root(version=1, expires=expiry(now, days["root"]), consistent_snapshot=True)
        signers = {role: _give_keys(folder, root, role, root_keys, threshold, passphrase) for role in ROLES}
        metadata = Metadata(root)
        for signer in signers["root"]:
            metadata.sign(signer, append=True)
        folder.metadata.mkdir()
        write_bytes_atomically(folder.metadata / "1.root.json", metadata.to_bytes())
        folder.write_settings(KeySettings(expiry_days=days))
    return KeyFolder(path=path)


def _check_counts(threshold: int, root_keys: int) -> None:
    if root_keys > _ROOT_KEYS_AT_MOST:
        raise UsageError(
            f"{root_keys} root keys are too many; expected at most {_ROOT_KEYS_AT_MOST}",
            hint="make one per person who signs",
        )
    if not 1 <= threshold <= root_keys:
        raise UsageError(
            f"the threshold cannot be {threshold} of {root_keys} root keys; expected 1 <= threshold <= keys"
        )


def _give_keys(
    folder: KeyFolder, root: Root, role: Role, root_keys: int, threshold: int, passphrase: bytes | None
) -> list[CryptoSigner]:
    """Make new keys for a role, replacing those it has: ``root_keys`` for root, one for any other."""
    count, needed = (root_keys, threshold) if role == "root" else (1, 1)
    signers = [new_key(folder.private, role, passphrase) for _ in range(count)]
    for keyid in list(root.roles[role].keyids):
        root.revoke_key(keyid, role)
    for signer in signers:
        root.add_key(signer.public_key, role)
    root.roles[role] = TufRole([signer.public_key.keyid for signer in signers], needed)
    return signers


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """What new root metadata changes; without any change, only its expiry is renewed.

    ``roles`` get new keys. ``root_keys`` and ``threshold`` are those of the root role (None: as before).
    """

    roles: tuple[Role, ...] = ()
    root_keys: int | None = None
    threshold: int | None = None
    expiry_days: dict[Role, int] | None = None


def rotate_keys(
    folder: KeyFolder, rotation: Rotation, *, root_files: Sequence[Path], passphrase: bytes | None, now: datetime
) -> RootState:
    """Make the next root metadata and sign it with the available root keys; it stays pending until enough have signed.

    Raises UsageError if one is already pending, for too many keys, for a threshold that cannot be met, and as expiry
    and load_key.
    """
    with folder.locked():
        if folder.pending.exists():
            hint = "sign it with channel_tools mirror keys sign, or delete the file to discard it"
            raise UsageError(f"{folder.pending}: other new root metadata is still waiting for signatures", hint=hint)
        settings = folder.settings()
        if rotation.expiry_days:
            days = {**settings.expiry_days, **rotation.expiry_days}
            check_expiry_days(now, days)
            settings = KeySettings(expiry_days=days, issued=settings.issued)
        before = folder.root().signed
        root = Root.from_dict(before.to_dict())
        root.version += 1
        root.expires = expiry(now, settings.expiry_days["root"])
        count = rotation.root_keys or len(root.roles["root"].keyids)
        threshold = rotation.threshold or root.roles["root"].threshold
        _check_counts(threshold, count)
        for role in rotation.roles:
            _give_keys(folder, root, role, count, threshold, passphrase)
        if "root" not in rotation.roles:
            if count != len(root.roles["root"].keyids):
                raise UsageError("changing the number of root keys requires new root keys", hint="add --role root")
            root.roles["root"].threshold = threshold
        folder.write_settings(settings)
        write_bytes_atomically(folder.pending, Metadata(root).to_bytes())
        return _sign(folder, root_files, passphrase)


def sign_pending(folder: KeyFolder, *, root_files: Sequence[Path], passphrase: bytes | None) -> RootState:
    """Add signatures by the available root keys to the pending metadata; with enough of them it becomes current.

    Raises UsageError if nothing is pending, for a key that is not a root key, and as load_key.
    """
    with folder.locked():
        if not folder.pending.is_file():
            raise UsageError(f"{folder.path}: no root metadata is waiting for signatures")
        return _sign(folder, root_files, passphrase)


def _sign(folder: KeyFolder, root_files: Sequence[Path], passphrase: bytes | None) -> RootState:
    pending, before = read_root(folder.pending), folder.root().signed
    concerned = {*before.roles["root"].keyids, *pending.signed.roles["root"].keyids}
    paths = list(root_files) or sorted(folder.private.glob("root-*.pem"))
    for path in paths:
        signer = load_key(path, passphrase)
        if signer.public_key.keyid in concerned:
            pending.sign(signer, append=True)
        elif root_files:
            message = f"{path}: its key is neither a current nor a new root key"
            raise UsageError(message, hint="list the root keys with channel_tools mirror keys show")
    write_bytes_atomically(folder.pending, pending.to_bytes())
    if _lacking(before, pending) is None:
        folder.pending.replace(folder.metadata / f"{pending.signed.version}.root.json")
    return show_keys(folder)


def _lacking(before: Root, pending: Metadata[Root]) -> str | None:
    """Which signatures the pending metadata lacks, in words."""
    words = []
    for root, which in ((before, "current root keys"), (pending.signed, "new root keys")):
        result = root.get_verification_result("root", pending.signed_bytes, pending.signatures)
        if not result.verified:
            words.append(f"{len(result.signed)} of {result.threshold} signatures by the {which}")
    return ", ".join(words) or None


def show_keys(folder: KeyFolder) -> RootState:
    """The state of the key folder; no private key is read. Raises UsageError and ConfigError as KeyFolder."""
    chain = folder.root_files()
    root = read_root(chain[-1]).signed
    pending = read_root(folder.pending) if folder.pending.is_file() else None
    return RootState(
        version=root.version,
        fingerprint=fingerprint(chain[-1]),
        first_fingerprint=fingerprint(chain[0]),
        expires=root.expires.isoformat(),
        threshold=root.roles["root"].threshold,
        keyids={role: tuple(root.roles[role].keyids) for role in ROLES},
        pending=None if pending is None else _lacking(root, pending),
    )
