# SPDX-License-Identifier: BSD-3-Clause
"""Whose attestations count, for ``verify`` and for ``env create --require-attestation``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustRequest:
    """Public keys (files, or folders of them), or an identity that signed with Sigstore, and its OpenID issuer.

    With neither, the keys beside the local channel's signing key. ``sigstore_config`` is a Sigstore of the user's own.
    Raises UsageError for options that contradict each other.
    """

    trusted_keys: tuple[Path, ...] = ()
    certificate_identity: str | None = None
    certificate_oidc_issuer: str | None = None
    sigstore_config: Path | None = None

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
