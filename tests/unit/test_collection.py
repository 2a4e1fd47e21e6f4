# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_pytest_looks_into_every_folder_of_tests(pytestconfig: pytest.Config) -> None:
    """By itself it leaves out every folder with the name ``build``."""
    left_out = pytestconfig.getini("norecursedirs")
    folders = {folder for path in TESTS.rglob("test_*.py") for folder in path.relative_to(TESTS).parents}
    assert Path("unit", "build") in folders
    assert [folder for folder in folders if any(fnmatch(folder.name, pattern) for pattern in left_out)] == []
