# SPDX-License-Identifier: BSD-3-Clause
"""With strict channel priority, a package of ours hides all of conda-forge's of the same name: there are none.

conda-forge-names.yaml says which of our names conda-forge has. For a new recipe, look its name up where that file says,
and add a row.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from channel_tools.matrix import LoadedTree, RenderedPackage, expand_stacks, load_tree
from channel_tools.system.settings import Tree
from channel_tools.system.yamlfile import load_plain_yaml

ROOT = Path(__file__).parents[3]
NAMES = Path(__file__).with_name("conda-forge-names.yaml")
MEANT_TO_HIDE = {
    "mpich": "mpich-external",
    "libfabric": "libfabric-external",
    "libfabric1": "libfabric-external",
}
"""Names that one stack builds for conda-forge although it has them: in a channel of its own, the site's takes over."""
SAME_PLUGIN = {"nccl-ofi": "aws-ofi-nccl"}
"""Packages of ours with the same files as one of conda-forge's that has another name."""
RECORDS = os.environ.get("CHANNEL_TOOLS_TEST_CONDA_FORGE")


@functools.cache
def _tree() -> LoadedTree:
    return load_tree(Tree(root=ROOT))


@functools.cache
def _packages(stack: str) -> tuple[RenderedPackage, ...]:
    loaded = _tree()
    return tuple(expand_stacks(loaded, [loaded.stacks[stack]], foundation_kind="conda-forge", platform="linux-64"))


def _recipe_names() -> set[str]:
    """The names of the packages of all recipes, on any foundation."""
    loaded = _tree()
    stacks = [*loaded.stacks.values()]
    packages = expand_stacks(loaded, stacks, foundation_kind="registry", platform="linux-64")
    return {package.name for package in packages} | {one.name for name in loaded.stacks for one in _packages(name)}


def run_constraints(package: RenderedPackage) -> list[str]:
    """The run constraints of its recipe."""
    requirements = package.recipe["requirements"]
    assert isinstance(requirements, dict)
    found = requirements["run_constraints"]
    assert isinstance(found, list)
    return [str(item) for item in found]


def _known() -> Mapping[str, list[str]]:
    names: Mapping[str, list[str]] = load_plain_yaml(NAMES.read_bytes())["names"]
    return names


def test_each_name_was_looked_up() -> None:
    assert _recipe_names() == set(_known())


@pytest.mark.parametrize("stack", sorted(_tree().stacks))
def test_no_package_hides_one_of_conda_forge(stack: str) -> None:
    known = _known()
    hidden = {package.name for package in _packages(stack) if known[package.name]}
    assert hidden == {name for name, meant in MEANT_TO_HIDE.items() if meant == stack}


@pytest.mark.parametrize(("ours", "theirs"), SAME_PLUGIN.items())
def test_a_package_with_the_files_of_another_excludes_it(ours: str, theirs: str) -> None:
    packages = [one for name in _tree().stacks for one in _packages(name) if one.name == ours]
    assert packages
    for package in packages:
        assert f"{theirs} <0.0a0" in run_constraints(package)


@pytest.mark.skipif(RECORDS is None, reason="no records of conda-forge: CHANNEL_TOOLS_TEST_CONDA_FORGE names none")
def test_the_list_agrees_with_records_of_conda_forge() -> None:
    there = {
        record["name"]
        for subdir in ("linux-64", "noarch")
        for records in [json.loads(Path(str(RECORDS), "channel", subdir, "repodata.json").read_bytes())]
        for record in [*records["packages"].values(), *records["packages.conda"].values()]
    }
    assert "python" in there
    assert [name for name, feedstocks in _known().items() if name in there and not feedstocks] == []
