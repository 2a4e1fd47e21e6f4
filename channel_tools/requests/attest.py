# SPDX-License-Identifier: BSD-3-Clause
"""How packages are signed: by ``attest sign``, and by ``build`` as it admits them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class AttestRequest:
    """The key to sign with: a file, a folder that has one, or None for the settings' own, created if missing.

    ``command`` is the build command for the statements, empty if not known. ``channel`` is the address at which
    packages are published, if known.
    """

    signing_key: Path | None = None
    passphrase_file: Path | None = None
    command: tuple[str, ...] = ()
    channel: str | None = None

    def as_texts(self) -> dict[str, str]:
        """The request as plain values, for signing processes on other machines."""
        paths = {"signing_key": self.signing_key, "passphrase_file": self.passphrase_file}
        named = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
        return {"command": shlex.join(self.command), **named}

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> AttestRequest:
        """The request from the values of as_texts."""
        key, passphrase = texts.get("signing_key"), texts.get("passphrase_file")
        return cls(
            signing_key=None if key is None else Path(key),
            passphrase_file=None if passphrase is None else Path(passphrase),
            command=tuple(shlex.split(texts["command"])),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SignRequest:
    """Sign the packages of ``target`` (a channel's folder, or a package) that have no attestation; ``again``: all.

    With ``sigstore``, Sigstore signs as well: as the identity of the token in ``identity_token_file`` (None: that of
    the CI service that this runs in, else a browser is opened), at the instance of ``sigstore_config`` (a client
    configuration of sigstore-python, ClientTrustConfig as JSON; None: the public one).

    Raises UsageError for options of Sigstore without it.
    """

    target: Path
    attest: AttestRequest = field(default_factory=AttestRequest)
    sigstore: bool = False
    identity_token_file: Path | None = None
    sigstore_config: Path | None = None
    again: bool = False

    def __post_init__(self) -> None:
        if not self.sigstore and (self.identity_token_file or self.sigstore_config):
            message = "--identity-token-file or --sigstore-config without --sigstore"
            raise UsageError(message, hint="give --sigstore as well")
