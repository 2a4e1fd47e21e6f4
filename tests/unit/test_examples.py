# SPDX-License-Identifier: BSD-3-Clause
"""The examples in docstrings say what the functions return."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import channel_tools

_ROOT = Path(channel_tools.__file__).parent
_WITH_EXAMPLES = sorted(
    ".".join(("channel_tools", *path.relative_to(_ROOT).with_suffix("").parts))
    for path in _ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", _WITH_EXAMPLES)
def test_the_examples_of_a_module_hold(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted
    assert not results.failed
