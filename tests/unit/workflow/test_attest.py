# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from channel_tools.provenance.trust import TrustedIdentity, create_key
from channel_tools.requests.attest import TrustRequest
from channel_tools.system.errors import UsageError
from channel_tools.workflow.attest import trust_of, trusted_keys


def test_without_any_key_nothing_can_be_checked() -> None:
    with pytest.raises(UsageError, match="no trusted key"):
        trusted_keys(None, [])


def test_a_request_trusts_keys_or_an_identity(tmp_path: Path) -> None:
    create_key(tmp_path / "keys", passphrase=None, days=30, now=datetime.now(UTC))
    (key,) = trusted_keys(None, [tmp_path / "keys"])
    assert trust_of(None, TrustRequest(trusted_keys=(tmp_path / "keys",))) == (key,)
    issuer = "https://issuer.example"
    named = TrustRequest(certificate_identity="builder", certificate_oidc_issuer=issuer)
    assert trust_of(None, named) == TrustedIdentity(identity="builder", issuer=issuer, config=None)
