# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import load_tree
from channel_tools.matrix.changed_tree import ChangedTree, every_variant
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from tests.unit.matrix.toytree import write_tree


def changed(tmp_path: Path, name: str, change: tuple[str, str]) -> ChangedTree:
    """The toy tree, with a change of one file's text."""
    write_tree(tmp_path / "real")
    path = tmp_path / "real" / name
    root = tmp_path / "changed"
    root.mkdir()
    content = path.read_text().replace(*change).encode()
    assert content != path.read_bytes()
    return ChangedTree(load_tree(Tree(root=tmp_path / "real"), {}), {}, root, {path: content})


def test_it_is_loaded_with_the_change_and_the_real_one_stays(tmp_path: Path) -> None:
    tree = changed(tmp_path, "recipes/libtoy/recipe.yaml", ("1.2.0", "1.3.0"))
    assert {one.version for one in every_variant(tree.loaded(), "libtoy")} == {"1.3.0"}
    assert {one.version for one in every_variant(load_tree(Tree(root=tmp_path / "real"), {}), "libtoy")} == {"1.2.0"}
    others = [path for path in (tmp_path / "changed" / "recipes").iterdir() if path.name != "libtoy"]
    assert others
    assert all(path.is_symlink() for path in others)


def test_an_error_names_the_real_files(tmp_path: Path) -> None:
    tree = changed(tmp_path, "variants/stacks.yaml", ("packages:", "packets:"))
    with (
        pytest.raises(ConfigError, match=r"with 1\.1: .*real/variants/stacks\.yaml") as caught,
        tree.real_names("with 1.1: "),
    ):
        tree.loaded()
    assert str(tree.root) not in f"{caught.value} {caught.value.hint}"
