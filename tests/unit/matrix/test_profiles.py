# SPDX-License-Identifier: BSD-3-Clause
"""Profiles of a tree's own: beside those of an upstream's recipe, in place of one, chosen by site.yaml."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.matrix.site import files_to_copy, files_to_export
from channel_tools.plan.inputs import TreeFiles
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from channel_tools.workflow.upstream import update_upstreams
from tests.support.fabric_profile import RECIPE
from tests.unit.foundation.registries import NotedProgress
from tests.unit.matrix.toytree import PLATFORM

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.matrix import RenderedPackage

STACKS = """\
default_stack: fabric-profile
stacks:
  fabric-profile:
    description: profiles
    variants: [fabric-profile.yaml]
    packages: [fabric-profile]
    install: [fabric-profile]
"""
OWN = "default_stack: own\nstacks:\n  own: {extends: fabric-profile, description: ours}\n"
OURS = (RECIPE / "profiles/slingshot.toml").read_text(encoding="utf-8")


def write_site(root: Path, site: str = "", profiles: tuple[str, ...] = ()) -> Tree:
    """A tree beside one with the recipe itself, which it has copied."""
    theirs = root / "theirs"
    shutil.copytree(RECIPE, theirs / "recipes/fabric-profile")
    (theirs / "variants").mkdir()
    (theirs / "variants/stacks.yaml").write_text(STACKS)
    (theirs / "variants/fabric-profile.yaml").write_text(
        "fabric_profile: [slingshot, alps]\nfabric_profile_default: [slingshot]\n"
    )
    (theirs / "LICENSE").write_text("BSD\n")
    tree = Tree(root=root / "site")
    for folder in (tree.variants, tree.recipes, tree.profiles):
        folder.mkdir(parents=True)
    tree.stacks_file.write_text(OWN)
    tree.site_file.write_text(f"upstreams: [{{name: theirs, path: ../theirs}}]\n{site}")
    for name in profiles:
        (tree.profiles / f"{name}.toml").write_text(OURS.replace('"slingshot"', f'"{name}"'))
    update_upstreams(tree, (), progress=NotedProgress())
    return tree


def packages(tree: Tree) -> dict[str, RenderedPackage]:
    """The packages by their profile."""
    loaded = load_tree(tree)
    found = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=PLATFORM)
    return {str(package.variant["fabric_profile"]): package for package in found}


def preferred(built: dict[str, RenderedPackage]) -> set[str]:
    """The profiles that solvers take unless asked for another."""
    return {
        name
        for name, package in built.items()
        if package.recipe["build"]["variant"]["down_prioritize_variant"] == 0  # type: ignore[index, call-overload]
    }


def profile_files(tree: Tree, package: RenderedPackage) -> dict[str, Path]:
    """What the build finds in ``profiles/`` by name; a later source stands over an earlier one."""
    found: dict[str, Path] = {}
    by_target = {file.target: file for file in TreeFiles(tree.root).of_build(package)}
    for source in package.sources:
        if source.target_directory == "profiles":
            path = (package.recipe_file.folder / source.location).resolve()
            files = [file.path for file in by_target.values() if file.path.resolve().is_relative_to(path)]
            found |= {file.name: file.resolve() for file in files}
    return found


def test_a_tree_adds_a_profile_and_changes_one_without_a_fork(tmp_path: Path) -> None:
    site = write_site(tmp_path, profiles=("ours", "alps"))
    built = packages(site)
    assert built.keys() == {"slingshot", "alps", "ours"}
    assert preferred(built) == {"slingshot"}
    for name in ("ours", "alps"):
        assert profile_files(site, built[name])[f"{name}.toml"] == site.profiles / f"{name}.toml"
    theirs = site.upstreams / "theirs/recipes/fabric-profile/profiles"
    assert profile_files(site, built["slingshot"])["slingshot.toml"] == theirs / "slingshot.toml"
    assert "ours.toml" not in profile_files(site, built["slingshot"])


def test_what_a_tree_does_not_change_is_built_as_upstream(tmp_path: Path) -> None:
    site = write_site(tmp_path, profiles=("ours",))
    ours, theirs = packages(site), packages(Tree(root=tmp_path / "theirs"))
    assert ours["alps"].recipe == theirs["alps"].recipe
    assert ours["alps"].variant == theirs["alps"].variant


@pytest.mark.parametrize("name", ["ours", "alps"])
def test_the_profile_of_site_yaml_is_what_users_get(tmp_path: Path, name: str) -> None:
    built = packages(write_site(tmp_path, f"profile: {name}\n", profiles=("ours",)))
    assert preferred(built) == {name}


def test_a_profile_travels_with_the_tree(tmp_path: Path) -> None:
    site = write_site(tmp_path, profiles=("ours",))
    assert "profiles/ours.toml" in files_to_copy(site.root)
    assert "profiles/ours.toml" in files_to_export(site)


@pytest.mark.parametrize(
    ("site", "profiles", "message"),
    [
        pytest.param(
            "profile: our\n", ("ours",), "profile names 'our', and there is no profiles/our.toml", id="unknown"
        ),
        pytest.param("profile: [ours]\n", ("ours",), "profile", id="a list"),
        pytest.param("profiles: ours\n", ("ours",), "profiles", id="unknown key"),
        pytest.param("", ("our-cluster",), "name is 'our-cluster', expected lower case letters", id="no name"),
    ],
)
def test_each_mistake_is_one_error(tmp_path: Path, site: str, profiles: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        load_tree(write_site(tmp_path, site, profiles=profiles))
    assert message in caught.value.message
    assert caught.value.hint


def test_two_profiles_of_one_name_in_a_tree_are_one_error(tmp_path: Path) -> None:
    write_site(tmp_path)
    tree = Tree(root=tmp_path / "theirs")
    tree.profiles.mkdir()
    (tree.profiles / "alps.toml").write_text(OURS)
    with pytest.raises(ConfigError, match=r"two profiles are named 'alps': this file and .*alps\.toml"):
        load_tree(tree)


def test_a_tree_without_stacks_that_have_profiles_is_as_before(tmp_path: Path) -> None:
    site = write_site(tmp_path, profiles=("ours",))
    site.stacks_file.write_text(
        "default_stack: own\nstacks: {own: {description: d, packages: [mine], install: [mine]}}\n"
    )
    (site.recipes / "mine").mkdir()
    (site.recipes / "mine/recipe.yaml").write_text("package: {name: mine, version: '1'}\nbuild: {noarch: generic}\n")
    loaded = load_tree(site)
    (mine,) = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=PLATFORM)
    assert "fabric_profile" not in mine.variant
