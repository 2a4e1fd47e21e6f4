# SPDX-License-Identifier: BSD-3-Clause
"""Whose attestations count, for ``verify`` and for ``env create --require-attestation``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from channel_tools.requests import options
from channel_tools.system.errors import UsageError


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
