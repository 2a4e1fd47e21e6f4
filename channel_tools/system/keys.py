# SPDX-License-Identifier: BSD-3-Clause
"""Private keys in files: making and reading them, and their passphrases.

A key is ed25519, in PKCS 8 (PEM), mode 0600. The keys that sign bundles and attestations are such files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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

from channel_tools.system.errors import UsageError
from channel_tools.system.files import read_first_line

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 16
"""How many digits of a key's ID are shown in file names and messages."""
_PRIVATE_MODE = 0o600


def read_passphrase(path: Path | None) -> bytes | None:
    """The passphrase in the first line of a file. Raises UsageError if it is empty, and as read_first_line."""
    if path is None:
        return None
    passphrase = read_first_line(path).strip()
    if not passphrase:
        raise UsageError(f"{path}: its first line is empty; expected a passphrase")
    return passphrase


def new_key(folder: Path, name: str, passphrase: bytes | None) -> CryptoSigner:
    """Make a key and write it to ``folder`` as ``NAME-KEYID.pem``, encrypted if there is a passphrase."""
    signer = CryptoSigner.generate_ed25519()
    key = load_pem_private_key(signer.private_bytes, None)
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{name}-{signer.public_key.keyid[:SHORT]}.pem"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    return signer


def load_key(path: Path, passphrase: bytes | None) -> CryptoSigner:
    """The key in a file. Raises UsageError for a missing or wrong passphrase, and for a file without such a key."""
    hint = "give the file with its passphrase with --passphrase-file"
    try:
        key = load_pem_private_key(path.read_bytes(), passphrase)
    except TypeError:
        if passphrase is None:
            raise UsageError(f"{path}: the key is encrypted, and no passphrase was given", hint=hint) from None
        return load_key(path, None)  # the passphrase is for other keys; this one is not encrypted
    except ValueError as err:
        if passphrase is not None and b"ENCRYPTED" in path.read_bytes():
            raise UsageError(f"{path}: the passphrase is wrong", hint=hint) from None
        raise UsageError(f"{path}: not a private key: {err}", hint="restore it from a copy") from None
    except (OSError, UnsupportedAlgorithm) as err:
        raise UsageError(f"{path}: cannot be read as a private key: {err}", hint="restore it from a copy") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path}: has another type of key; expected ed25519", hint="use a key that this program made")
    return CryptoSigner(key, SSlibKey.from_crypto(key.public_key()))
