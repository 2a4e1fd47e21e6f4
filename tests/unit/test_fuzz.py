# SPDX-License-Identifier: BSD-3-Clause
"""What fuzzing begins with and what it found once: read again in every run, in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.requests import Requests
from tests.fuzz.targets import Bundles, Documents, Packages, Records, Target, Unpacked


@pytest.mark.parametrize("kind", [Packages, Records, Bundles, Requests, Documents, Unpacked])
def test_seeds_and_findings_do_no_harm(tmp_path: Path, kind: type[Target]) -> None:
    target = kind(tmp_path / "fuzz")
    inputs = [*target.seeds(), *kind.findings().values()]
    assert len(inputs) > 1
    for data in inputs:
        target.run(data)
    target.close()
