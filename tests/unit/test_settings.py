# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import UsageError
from channel_tools.settings import make_settings


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "recipes" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "variants").mkdir()
    (tmp_path / "tree" / "variants" / "stacks.yaml").write_text("stacks: {}\n")
    return tmp_path / "tree"


def test_tree_is_found_upward(tree: Path) -> None:
    settings = make_settings(root=None, output=None, environ={}, cwd=tree / "recipes" / "deep")
    assert settings.tree.root == tree
    assert settings.channel == tree / "output" / "channel"


def test_option_wins_over_environment(tree: Path, tmp_path: Path) -> None:
    environ = {"CHANNEL_TOOLS_ROOT": str(tmp_path / "elsewhere"), "CHANNEL_TOOLS_OUTPUT": str(tmp_path / "out")}
    settings = make_settings(root=tree, output=None, environ=environ, cwd=tmp_path)
    assert settings.tree.root == tree
    assert settings.output == tmp_path / "out"


def test_no_tree_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither this folder nor any above it"):
        make_settings(root=None, output=None, environ={}, cwd=tmp_path)
    with pytest.raises(UsageError, match=r"expected recipes/ and variants/stacks\.yaml"):
        make_settings(root=tmp_path, output=None, environ={}, cwd=tmp_path)
