# SPDX-License-Identifier: BSD-3-Clause
"""``verify`` and ``env create --require-attestation``: whose attestations count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.provenance.trust import Trust, TrustedKey
    from channel_tools.requests.trust import TrustRequest
    from channel_tools.system.settings import Settings


def trusted_keys(settings: Settings | None, files: Sequence[Path]) -> list[TrustedKey]:
    """The public keys in ``files``, else those beside the local channel's own signing key.

    Raises UsageError if there is none, and as read_trusted_keys does.
    """
    if not files and settings is not None:
        own = settings.signing_keys if settings.signing_keys.is_dir() else settings.signing_keys.parent
        files = [own] if own.is_dir() else []
    if not files:
        hint = "give --trusted-key with the attestation-KEYID.json of those who build the channel"
        raise UsageError("no trusted key, so no attestation can be checked", hint=hint)
    from channel_tools.provenance.trust import read_trusted_keys  # noqa: PLC0415 - slow to import

    return read_trusted_keys(files)


def trust_of(settings: Settings | None, request: TrustRequest) -> Trust:
    """Whose attestations count by a request. Raises as trusted_keys does."""
    if request.certificate_identity is None or request.certificate_oidc_issuer is None:
        return tuple(trusted_keys(settings, request.trusted_keys))
    from channel_tools.provenance.trust import TrustedIdentity  # noqa: PLC0415 - slow to import

    return TrustedIdentity(
        identity=request.certificate_identity, issuer=request.certificate_oidc_issuer, config=request.sigstore_config
    )
