# SPDX-License-Identifier: BSD-3-Clause
"""The command line started from scratch, again and again: what the end of an interpreter may spoil.

Apart from the other tests of the command line, which fork a process that is there: this one takes seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

_RECIPE = """\
schema_version: 1
package: {name: toy, version: '1.0'}
build: {noarch: generic, number: 0, script: "echo ${{ flavour }}"}
about: {license: BSD-3-Clause}
"""
_STACKS = """\
default_stack: toy
stacks:
  toy:
    description: one small package
    variants: [toy.yaml]
    packages: [toy]
    install: [toy]
    validate: {method: switchml}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "recipes" / "toy").mkdir(parents=True)
    (root / "variants").mkdir()
    (root / "recipes" / "toy" / "recipe.yaml").write_text(_RECIPE)
    (root / "variants" / "toy.yaml").write_text("flavour: [plain]\n")
    (root / "variants" / "stacks.yaml").write_text(_STACKS)
    return root


@pytest.mark.parametrize("attempt", range(20))
def test_exit_code_is_exact_though_rattler_was_used(tree: Path, attempt: int) -> None:
    del attempt
    command = [sys.executable, "-m", "channel_tools", "list", "--root", str(tree)]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
