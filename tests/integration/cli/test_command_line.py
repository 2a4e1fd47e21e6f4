# SPDX-License-Identifier: BSD-3-Clause
"""The command line started from scratch, again and again: what the end of an interpreter may spoil.

Apart from the other tests of the command line, which fork a process that is there: this one takes seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import TEST_TIMEOUT_S
from tests.support.toy_tree import write_toy_tree

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write_toy_tree(root)
    return root


@pytest.mark.parametrize("attempt", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 20))])
def test_exit_code_is_exact_though_rattler_was_used(tree: Path, attempt: int) -> None:
    del attempt
    command = [sys.executable, "-m", "channel_tools", "list", "--root", str(tree)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=TEST_TIMEOUT_S).returncode == 0
