# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from channel_tools.requests.trust import TrustRequest
from channel_tools.system.errors import UsageError

IDENTITY = {"certificate_identity": "me@example.org", "certificate_oidc_issuer": "https://issuer.example"}


@pytest.mark.parametrize(
    "options",
    [
        {"certificate_identity": "me@example.org"},
        {"certificate_oidc_issuer": "https://issuer.example"},
        {"sigstore_config": Path("trust.json")},
        {**IDENTITY, "trusted_keys": (Path("keys"),)},
        {"certificate_identity": "", "certificate_oidc_issuer": ""},
        {"certificate_identity": "", "certificate_oidc_issuer": "", "trusted_keys": (Path("keys"),)},
    ],
    ids=["no issuer", "no identity", "only a Sigstore", "both kinds", "empty", "empty, and a key"],
)
def test_an_identity_has_an_issuer_and_no_key(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="go together, without --trusted-key"):
        TrustRequest(**options)


def test_any_option_names_someone() -> None:
    assert not TrustRequest().names_someone
    assert TrustRequest(trusted_keys=(Path("keys"),)).names_someone
    assert TrustRequest(**IDENTITY, sigstore_config=Path("trust.json")).names_someone  # type: ignore[arg-type]
