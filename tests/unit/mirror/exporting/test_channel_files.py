# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from channel_tools.provenance.trust import create_key
from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.errors import IntegrityError
from channel_tools.workflow.attest import sign_packages
from tests.unit.mirror.bundles import exporting_site

if TYPE_CHECKING:
    from pathlib import Path


def test_other_attestations_than_a_record_names_are_no_part_of_a_bundle(tmp_path: Path) -> None:
    site = exporting_site(tmp_path)
    keys = create_key(tmp_path / "signing", passphrase=None, days=30, now=datetime.now(UTC)).parent
    sign_packages(None, SignRequest(target=tmp_path / "channel", attest=AttestRequest(signing_key=keys)))
    [sidecar] = (tmp_path / "channel" / "linux-64").glob("*.sigs.*")
    sidecar.write_bytes(b"[]")
    with pytest.raises(IntegrityError, match="its bytes differ from the hash in the record"):
        site.plan()
