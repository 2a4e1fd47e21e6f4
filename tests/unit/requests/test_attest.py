# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.requests.attest import AttestRequest, SignRequest
from channel_tools.system.errors import UsageError


def test_a_request_reaches_other_machines_as_texts_with_whole_paths() -> None:
    command = ("channel_tools", "build", "--package", "a name")
    request = AttestRequest(signing_key=Path("keys"), command=command)
    given = AttestRequest.of_texts(request.as_texts())
    assert given == AttestRequest(signing_key=Path.cwd() / "keys", command=command)
    assert AttestRequest.of_texts(AttestRequest().as_texts()) == AttestRequest()


def test_options_of_sigstore_are_for_signing_by_it() -> None:
    package = Path("toy-1.0-0.conda")
    assert SignRequest(target=package, sigstore=True, sigstore_config=Path("config.json")).sigstore
    with pytest.raises(UsageError, match="without --sigstore"):
        SignRequest(target=package, sigstore_config=Path("config.json"))
    with pytest.raises(UsageError, match="without --sigstore"):
        SignRequest(target=package, identity_token_file=Path("token"))
