# SPDX-License-Identifier: BSD-3-Clause
"""Making a key folder, and changing keys: each new root metadata is signed by the old root keys and by the new ones.

An importing site follows that chain, so it needs a fingerprint only once. Where the root keys of several people are
needed, the new metadata waits in ``pending.root.json`` until enough of them have signed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuf.api.metadata import Metadata, Root
from tuf.api.metadata import Role as TufRole

from channel_tools.mirror.trust.keys import (
    ROLES,
    KeyFolder,
    KeySettings,
    Role,
    check_expiry_days,
    expiry,
    fingerprint,
    read_root,
)
from channel_tools.system.errors import UsageError
from channel_tools.system.files import atomic_path, write_bytes_atomically
from channel_tools.system.keys import load_key, new_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from securesystemslib.signer import CryptoSigner

DEFAULT_EXPIRY_DAYS: dict[Role, int] = {"root": 1095, "targets": 180, "snapshot": 180, "timestamp": 180}
_ROOT_KEYS_AT_MOST = 100
"""Long enough for a medium to travel and be imported; an importing site rejects what is older as frozen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RootState:
    """The root metadata in force, and what a pending one lacks (None: there is none)."""

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

    The folder appears whole. Raises UsageError when something is there, for too many keys, for a threshold that cannot
    be met, and as expiry.
    """
    _check_counts(threshold, root_keys)
    if path.exists():
        hint = "channel_tools mirror keys rotate changes keys; --keys names another folder"
        raise UsageError(f"{path}: exists already; keys are never overwritten", hint=hint)
    days = {**DEFAULT_EXPIRY_DAYS, **expiry_days}
    check_expiry_days(now, days)
    with atomic_path(path, clear_abandoned=True) as temporary:  # which would be private keys
        folder = KeyFolder(path=temporary)
        folder.path.mkdir(mode=0o700)
        root = Root(version=1, expires=expiry(now, days["root"]), consistent_snapshot=True)
        made = {role: _give_keys(folder, root, role, root_keys, threshold, passphrase) for role in ROLES}
        metadata = Metadata(root)
        for signer in made["root"]:
            metadata.sign(signer, append=True)
        folder.metadata.mkdir()
        write_bytes_atomically(folder.metadata / "1.root.json", metadata.to_bytes())
        folder.write_settings(KeySettings(expiry_days=days))
    return KeyFolder(path=path)


def _check_counts(threshold: int, root_keys: int) -> None:
    if root_keys > _ROOT_KEYS_AT_MOST:
        raise UsageError(f"{root_keys} root keys: more than {_ROOT_KEYS_AT_MOST}", hint="make one for each who signs")
    if not 1 <= threshold <= root_keys:
        raise UsageError(f"{threshold} of {root_keys} root keys cannot sign; expected 1 <= threshold <= keys")


def _give_keys(
    folder: KeyFolder, root: Root, role: Role, root_keys: int, threshold: int, passphrase: bytes | None
) -> list[CryptoSigner]:
    """Make new keys for a role, in place of those it has: ``root_keys`` for root, one for any other."""
    count, needed = (root_keys, threshold) if role == "root" else (1, 1)
    made = [new_key(folder.private, role, passphrase) for _ in range(count)]
    for keyid in list(root.roles[role].keyids):
        root.revoke_key(keyid, role)
    for signer in made:
        root.add_key(signer.public_key, role)
    root.roles[role] = TufRole([signer.public_key.keyid for signer in made], needed)
    return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """What new root metadata changes; with nothing of it, only the time until which it counts.

    ``roles`` get new keys. ``root_keys`` and ``threshold`` are those of the root role (None: as before).
    """

    roles: tuple[Role, ...] = ()
    root_keys: int | None = None
    threshold: int | None = None
    expiry_days: dict[Role, int] | None = None


def rotate_keys(
    folder: KeyFolder, rotation: Rotation, *, root_files: Sequence[Path], passphrase: bytes | None, now: datetime
) -> RootState:
    """Make the next root metadata and sign it with the root keys at hand; it waits as pending until enough did.

    Raises UsageError when one is pending already, for too many keys, for a threshold that cannot be met, and as expiry
    and load_key.
    """
    with folder.locked():
        if folder.pending.exists():
            hint = "sign it (channel_tools mirror keys sign), or delete the file to give it up"
            raise UsageError(f"{folder.pending}: new root metadata waits for signatures already", hint=hint)
        settings = folder.settings()
        if rotation.expiry_days:
            days = {**settings.expiry_days, **rotation.expiry_days}
            check_expiry_days(now, days)
            settings = KeySettings(expiry_days=days, issued=settings.issued)
        before = folder.root().signed
        root = Root.from_dict(before.to_dict())
        root.version += 1
        root.expires = expiry(now, settings.expiry_days["root"])
        _change_roles(folder, root, rotation, passphrase)
        folder.write_settings(settings)
        write_bytes_atomically(folder.pending, Metadata(root).to_bytes())
        return _sign(folder, root_files, passphrase)


def _change_roles(folder: KeyFolder, root: Root, rotation: Rotation, passphrase: bytes | None) -> None:
    count = rotation.root_keys or len(root.roles["root"].keyids)
    threshold = rotation.threshold or root.roles["root"].threshold
    _check_counts(threshold, count)
    for role in rotation.roles:
        _give_keys(folder, root, role, count, threshold, passphrase)
    if "root" not in rotation.roles:
        if count != len(root.roles["root"].keyids):
            raise UsageError("another number of root keys needs new root keys", hint="add --role root")
        root.roles["root"].threshold = threshold


def sign_pending(folder: KeyFolder, *, root_files: Sequence[Path], passphrase: bytes | None) -> RootState:
    """Add the signatures of the root keys at hand to the pending metadata; with enough of them it comes into force.

    Raises UsageError when nothing is pending, for a key that has no say, and as load_key.
    """
    with folder.locked():
        if not folder.pending.is_file():
            raise UsageError(f"{folder.path}: no root metadata waits for signatures")
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
            message = f"{path}: its key is neither one of the root keys in force nor one of the new ones"
            raise UsageError(message, hint="channel_tools mirror keys show names them")
    write_bytes_atomically(folder.pending, pending.to_bytes())
    if _lacking(before, pending) is None:
        folder.pending.replace(folder.metadata / f"{pending.signed.version}.root.json")
    return show_keys(folder)


def _lacking(before: Root, pending: Metadata[Root]) -> str | None:
    """Whose signatures the pending metadata lacks, in words."""
    words = []
    for root, which in ((before, "root keys in force"), (pending.signed, "new root keys")):
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
