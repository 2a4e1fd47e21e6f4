# SPDX-License-Identifier: BSD-3-Clause
"""A recipe that is built by its path, without a tree around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, load_tree
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import make_recipe_settings
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix import FoundationKind, RenderedPackage

RECIPE = """\
package: {name: toy, version: "1.0"}
build: {script: [make]}
requirements:
  build: ["${{ compiler('c') }}", "${{ stdlib('c') }}"]
  host: [python, libwire]
"""


def _rendered(root: Path, kind: FoundationKind = "registry") -> list[RenderedPackage]:
    tree = make_recipe_settings(root / "toy", output=None, environ={}, cwd=root).tree
    loaded = load_tree(tree)
    return expand_stacks(loaded, loaded.own_stacks, foundation_kind=kind, platform=PLATFORM)


def _write(root: Path, **files: str) -> None:
    (root / "toy").mkdir()
    for name, text in {"recipe.yaml": RECIPE, **files}.items():
        (root / "toy" / name).write_text(text)


@pytest.mark.parametrize(("kind", "compiler"), [("registry", "12"), ("conda-forge", "15")])
def test_a_recipe_has_the_values_of_a_new_tree(tmp_path: Path, kind: FoundationKind, compiler: str) -> None:
    _write(tmp_path)
    (package,) = _rendered(tmp_path, kind)
    assert (package.stack, package.name, package.variant["python"]) == ("toy", "toy", "3.11.* *_cpython")
    assert package.variant["c_compiler_version"] == compiler


@pytest.mark.parametrize("name", ["variants.yaml", "conda_build_config.yaml"])
def test_the_variant_file_beside_it_stands_over_them(tmp_path: Path, name: str) -> None:
    _write(tmp_path, **{name: "python: ['3.12.*', '3.13.*']\nlibwire: ['1', '2']\nzip_keys: [[python, libwire]]\n"})
    found = [(one.variant["python"], one.variant["libwire"]) for one in _rendered(tmp_path)]
    assert found == [("3.12.*", "1"), ("3.13.*", "2")]


def test_a_key_that_it_does_not_use_is_noted_in_its_own_file_alone(tmp_path: Path) -> None:
    _write(tmp_path, **{"variants.yaml": "pyhton: ['3.12.*']\n"})
    notes = load_tree(make_recipe_settings(tmp_path / "toy", output=None, environ={}, cwd=tmp_path).tree).notes
    assert len(notes) == 1
    assert "variants.yaml:1" in notes[0]


@pytest.mark.parametrize("given", ["toy", "toy/recipe.yaml"])
def test_results_are_where_the_command_runs(tmp_path: Path, given: str) -> None:
    _write(tmp_path)
    settings = make_recipe_settings(tmp_path / given, output=None, environ={}, cwd=tmp_path)
    assert settings.output == tmp_path / "output"
    assert settings.tree.root == tmp_path / "toy"
    other = make_recipe_settings(tmp_path / given, output=tmp_path / "out", environ={}, cwd=tmp_path)
    assert other.output == tmp_path / "out"


def test_a_list_is_no_recipe(tmp_path: Path) -> None:
    _write(tmp_path, **{"recipe.yaml": "- a\n"})
    with pytest.raises(ConfigError, match="a recipe must be a mapping"):
        _rendered(tmp_path)


@pytest.mark.parametrize("given", ["none", "toy/meta.yaml", "toy/src"])
def test_what_is_no_recipe_is_refused(tmp_path: Path, given: str) -> None:
    _write(tmp_path, **{"meta.yaml": "package: {}\n"})
    (tmp_path / "toy" / "src").mkdir()
    with pytest.raises(UsageError, match="nor a folder with one") as caught:
        make_recipe_settings(tmp_path / given, output=None, environ={}, cwd=tmp_path)
    assert "--package" in str(caught.value.hint)


def test_a_recipe_of_a_tree_is_built_with_the_tree(tmp_path: Path) -> None:
    assert "recipes/libtoy/recipe.yaml" in FILES
    write_tree(tmp_path)
    with pytest.raises(UsageError, match="belongs to the tree") as caught:
        make_recipe_settings(tmp_path / "recipes" / "libtoy", output=None, environ={}, cwd=tmp_path)
    assert caught.value.hint == f"channel_tools build --root {tmp_path} --package libtoy"
