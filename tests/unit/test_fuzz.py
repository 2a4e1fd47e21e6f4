# SPDX-License-Identifier: BSD-3-Clause
"""What fuzzing begins with and what it found once: read again in every run, in seconds."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from tests.fuzz.switchml.__main__ import CORPUS, TARGETS, add_inputs
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


def test_an_input_that_is_added_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    packed, new = tmp_path / "packets.zip", tmp_path / "finding"
    shutil.copy(CORPUS / packed.name, packed)
    new.write_bytes(b"new")
    add_inputs(packed, [])
    assert packed.read_bytes() == (CORPUS / packed.name).read_bytes()
    add_inputs(packed, [new])
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(CORPUS / packed.name) as before:
        assert archive.read("finding") == b"new"
        assert archive.namelist() == sorted([*before.namelist(), "finding"])
        assert all(archive.read(name) == before.read(name) for name in before.namelist())
