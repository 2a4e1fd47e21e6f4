# SPDX-License-Identifier: BSD-3-Clause
"""How packages are signed: by ``attest sign``, and by ``build`` as it admits them.

Whose attestations count, for ``verify`` and for ``env create --require-attestation``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from channel_tools.requests import options
from channel_tools.system.errors import UsageError
from channel_tools.system.files import absolute_path


@dataclass(frozen=True, kw_only=True, slots=True)
class AttestRequest:
    """The key to sign with. ``command`` is the build command for the statements, empty if not known.

    ``channel`` is the address at which packages are published, if known.
    """

    signing_key: options.SigningKey = None
    passphrase_file: options.PassphraseFile = None
    command: tuple[str, ...] = ()
    channel: str | None = None

    def as_texts(self) -> dict[str, str]:
        """The request as plain values, for signing processes on other machines."""
        paths = {"signing_key": self.signing_key, "passphrase_file": self.passphrase_file}
        named = {name: str(absolute_path(path)) for name, path in paths.items() if path is not None}
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
class PublishedAttestRequest(AttestRequest):
    """The same where packages may be published already."""

    channel: Annotated[
        str | None,
        Option("--published-at", help="The address at which the packages are published.", show_default="not stated"),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SignRequest:
    """Which packages are signed, by whom. Raises UsageError for options of Sigstore without it."""

    target: Annotated[Path, Argument(help="A channel's folder, or a .conda file.", show_default=False)]
    attest: AttestRequest = field(default_factory=PublishedAttestRequest)
    sigstore: Annotated[
        bool, Option("--sigstore", help="Sign with Sigstore as well; a CI service or a browser proves who you are.")
    ] = False
    identity_token_file: Annotated[
        Path | None,
        Option(metavar="FILE", help="Sign with Sigstore as the identity of this token.", show_default="none"),
    ] = None
    sigstore_config: options.SigstoreConfig = None
    again: Annotated[bool, Option("--again", help="Also sign packages that already have an attestation.")] = False

    def __post_init__(self) -> None:
        if not self.sigstore and (self.identity_token_file or self.sigstore_config):
            message = "--identity-token-file or --sigstore-config without --sigstore"
            raise UsageError(message, hint="give --sigstore as well")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustRequest:
    """Public keys, or an identity that signed with Sigstore, and its issuer.

    Raises UsageError for options that contradict each other.
    """

    trusted_keys: Annotated[
        tuple[Path, ...],
        Option(
            "--trusted-key",
            metavar="FILE",
            help="A public key (attestation-KEYID.json), or a folder of such files; may be repeated.",
            show_default="those beside the local channel's signing key",
        ),
    ] = ()
    certificate_identity: Annotated[
        str | None,
        Option(
            metavar="URL|EMAIL",
            help="The identity that must have signed with Sigstore, as in its certificate.",
            show_default="none",
        ),
    ] = None
    certificate_oidc_issuer: Annotated[
        str | None, Option(metavar="URL", help="The OpenID Connect issuer of that identity.", show_default="none")
    ] = None
    sigstore_config: options.SigstoreConfig = None

    def __post_init__(self) -> None:
        is_identity = self.certificate_identity and self.certificate_oidc_issuer and not self.trusted_keys
        if not is_identity and self._names_sigstore:
            message = "--certificate-identity and --certificate-oidc-issuer go together, without --trusted-key"
            raise UsageError(message, hint="give both, and no --trusted-key")

    @property
    def names_someone(self) -> bool:
        """Whether any of the options is given."""
        return bool(self.trusted_keys) or self._names_sigstore

    @property
    def _names_sigstore(self) -> bool:
        """Whether an option for Sigstore is given; an empty one is, too: a variable of a script that is not set."""
        settings = (self.certificate_identity, self.certificate_oidc_issuer, self.sigstore_config)
        return any(setting is not None for setting in settings)
