# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.foundation import codes
from channel_tools.foundation.repairs import REPAIRS


def test_every_step_has_a_digest_of_its_code() -> None:
    digests = {step: codes.step_digest(step) for step in REPAIRS}
    assert all(len(digest) == 64 for digest in digests.values())
    assert digests["native"] != digests["split_pytorch"]


def test_a_change_in_an_imported_module_changes_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = codes.step_digest("native")
    original = codes._source

    def changed(module: str) -> bytes:
        return original(module) + (b"# more" if module.endswith(".repairs.layout") else b"")

    monkeypatch.setattr(codes, "_source", changed)
    codes.step_digest.cache_clear()
    try:
        assert codes.step_digest("native") != before
    finally:
        codes.step_digest.cache_clear()
