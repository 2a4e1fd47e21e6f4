# SPDX-License-Identifier: BSD-3-Clause
"""What fuzzing begins with and what it found once: read again in every run, in seconds."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.fuzz.switchml.__main__ import CORPUS, TARGETS
from tests.fuzz.targets import Bundles, Documents, Packages, Records, Target, Unpacked


@pytest.mark.parametrize("kind", [Packages, Records, Bundles, Documents, Unpacked])
def test_seeds_and_findings_do_no_harm(tmp_path: Path, kind: type[Target]) -> None:
    target = kind(tmp_path / "fuzz")
    inputs = [*target.seeds(), *kind.findings().values()]
    assert len(inputs) > 1
    for data in inputs:
        target.run(data)
    target.close()


def test_every_program_of_switchml_has_inputs() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(f"{name}.zip" for name in TARGETS)
    for path in CORPUS.iterdir():
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert len(archive.namelist()) > 1
