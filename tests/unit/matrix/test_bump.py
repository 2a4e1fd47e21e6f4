# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import load_tree
from channel_tools.matrix.bump import (
    ChangedLine,
    ChangedTree,
    changed_lines,
    check_version,
    every_variant,
    renamed,
    with_hashes,
)
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import Tree
from tests.unit.matrix.toytree import write_tree


@pytest.mark.parametrize("version", ["1.2.3", "2!1.0rc1", "1.0+local", "2026_1"])
def test_what_a_file_name_can_have_is_a_version(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["", "1.0-1", "v 1", "1/2"])
def test_anything_else_is_not(version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        check_version(version)


def test_a_version_is_replaced_where_it_stands_as_a_whole() -> None:
    assert renamed("patches/toy/1.0/0001.patch", "1.0", "1.1") == "patches/toy/1.1/0001.patch"
    assert renamed("toy-11.0/1.0.1/x", "1.0", "2.0") == "toy-11.0/1.0.1/x"


def test_hashes_are_replaced_in_every_file() -> None:
    texts = {Path("a"): "sha256: 1111", Path("b"): "rev: 2222, sha256: 1111"}
    assert with_hashes(texts, {"1111": "3333"}) == {Path("a"): "sha256: 3333", Path("b"): "rev: 2222, sha256: 3333"}


def test_only_lines_that_changed_are_shown() -> None:
    path = Path("recipe.yaml")
    assert changed_lines(path, "a\nb\nc\n", "a\nB\nc\n") == [ChangedLine(path=path, line=2, before="b", after="B")]
    assert changed_lines(path, "a\n", "a\n") == []
    assert changed_lines(path, "a\n", "a\nb\n") == [ChangedLine(path=path, line=2, before="", after="b")]


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
