# SPDX-License-Identifier: BSD-3-Clause
"""Files of unit tests are in memory, by an attribute of pytest's factory of folders (tests/unit/conftest.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def test_files_of_unit_tests_are_in_memory_in_whole_runs(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - nothing is written
    if not hasattr(request.config, "workerinput") or not os.access(memory, os.W_OK):
        pytest.skip("on one core, or without a file system in memory")
    assert tmp_path.is_relative_to(memory)
