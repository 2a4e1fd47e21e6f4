# SPDX-License-Identifier: BSD-3-Clause
"""The options that say whose attestations count, for the commands that check them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channel_tools.cli import options
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from channel_tools.provenance.trust import Trust

SigstoreConfig = Annotated[
    Path | None,
    typer.Option(
        "--sigstore-config",
        metavar="FILE",
        help="A Sigstore of your own: its ClientTrustConfig (JSON).",
        show_default="the public instance",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TrustOptions:
    """Public keys, or an identity that signed by Sigstore."""

    trusted_keys: Annotated[
        list[Path] | None,
        typer.Option(
            "--trusted-key",
            metavar="FILE",
            help="A public key (attestation-KEYID.json), or a folder of such files; may be repeated.",
            show_default="those beside the local channel's signing key",
        ),
    ] = None
    certificate_identity: Annotated[
        str | None,
        typer.Option(
            metavar="URL|EMAIL",
            help="Who has to have signed by Sigstore, as certificates name them.",
            show_default="none",
        ),
    ] = None
    certificate_oidc_issuer: Annotated[
        str | None, typer.Option(metavar="URL", help="Which provider says so.", show_default="none")
    ] = None
    sigstore_config: SigstoreConfig = None

    @property
    def names_someone(self) -> bool:
        """Whether any of the options is given."""
        return any((self.trusted_keys, self.certificate_identity, self.certificate_oidc_issuer, self.sigstore_config))

    def trust(self, root: Path | None, output: Path | None) -> Trust:
        """Whose attestations count. Raises UsageError for options that do not go together, and as trusted_keys."""
        from channel_tools.provenance.trust import TrustedIdentity  # noqa: PLC0415 - slow to import
        from channel_tools.workflow.verify import trusted_keys  # noqa: PLC0415

        identity, issuer = self.certificate_identity, self.certificate_oidc_issuer
        if identity and issuer and not self.trusted_keys:
            return TrustedIdentity(identity=identity, issuer=issuer, config=self.sigstore_config)
        if identity or issuer or self.sigstore_config:
            message = "an identity is trusted by --certificate-identity and --certificate-oidc-issuer"
            raise UsageError(message, hint="give both, and no --trusted-key")
        return tuple(trusted_keys(options.settings_if_any(root, output), self.trusted_keys or ()))
