# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.requests.attest import AttestRequest


def test_a_request_reaches_other_machines_as_texts_with_whole_paths() -> None:
    command = ("channel_tools", "build", "--package", "a name")
    request = AttestRequest(signing_key=Path("keys"), command=command)
    given = AttestRequest.of_texts(request.as_texts())
    assert given == AttestRequest(signing_key=Path.cwd() / "keys", command=command)
    assert AttestRequest.of_texts(AttestRequest().as_texts()) == AttestRequest()
