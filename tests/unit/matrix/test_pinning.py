# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import choices_of_recipes, expand_stacks, find_stack, load_tree
from channel_tools.matrix.load import files_of_stack
from channel_tools.matrix.variants import merge_variant_files
from channel_tools.system.errors import ConfigError
from channel_tools.system.settings import Tree
from tests.support.conda_forge import conda_forge_folder
from tests.unit.matrix.toytree import FILES, write_tree

_PINNING = """\
libwire: ["9.9"]
torch:
  - 2.13       # [linux and x86_64]
  - 2.12       # [aarch64]
unused_by_all:
  - 1
  - 2
python:
  - 3.10
  - 3.11
is_python_min:
  - true
  - false
alpha: [a, b]
beta: [c, d]
pin_run_as_build:
  python: {max_pin: x.x}
docker_image:
  - image:tag   # [os.environ.get("BUILD_PLATFORM") == "linux-64"]
zip_keys:
  -                   # [unix]
    - python
    - is_python_min
  -
    - alpha
    - beta
  -                   # [win]
    - torch           # [win]
"""


def _tree(root: Path, *, pinning: str = "pinned", **changes: str) -> Tree:
    stacks = f"pinning: {pinning}\n" + FILES["variants/stacks.yaml"]
    switch = (
        FILES["recipes/toy-switch/recipe.yaml"] + "about:\n  summary: ${{ is_python_min }} ${{ alpha }} ${{ beta }}\n"
    )
    return write_tree(
        root,
        {
            "variants/stacks.yaml": stacks,
            "pinned/conda_build_config.yaml": _PINNING,
            "recipes/toy-switch/recipe.yaml": switch,
            **changes,
        },
    )


@pytest.mark.parametrize("path", ["pinned", "pinned/conda_build_config.yaml"])
def test_the_pinning_is_below_the_trees_own_files_on_conda_forge_alone(tmp_path: Path, path: str) -> None:
    loaded = load_tree(_tree(tmp_path, pinning=path))
    stack = find_stack(loaded, None)
    merged = merge_variant_files(files_of_stack(loaded, stack, "conda-forge", "linux-64"))
    assert (merged.values["libwire"], merged.values["torch"]) == (("1.82",), ("2.13",))
    assert "unused_by_all" not in merged.values
    assert merged.values["python"] == ("3.11.*", "3.12.*")
    assert merged.zip_keys == (("alpha", "beta"),)
    other = merge_variant_files(files_of_stack(loaded, stack, "conda-forge", "linux-aarch64"))
    assert other.values["torch"] == ("2.12",)
    assert "torch" not in merge_variant_files(files_of_stack(loaded, stack, "registry", "linux-64")).values


def test_only_keys_that_a_recipe_uses_become_variants(tmp_path: Path) -> None:
    loaded = load_tree(_tree(tmp_path))
    packages = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="conda-forge", platform="linux-64")
    plugins = [dict(package.variant) for package in packages if package.name == "toy-plugin"]
    assert [variant["torch"] for variant in plugins] == ["2.13", "2.13"]
    assert all("torch" not in package.variant for package in packages if package.name == "libtoy")
    switches = [package.variant for package in packages if package.name == "toy-switch"]
    assert {(variant["alpha"], variant["beta"]) for variant in switches} == {("a", "c"), ("b", "d")}


def test_groups_of_the_tree_do_not_end_those_of_the_pinning(tmp_path: Path) -> None:
    udp = "transport: [udp, rdma]\nlibwire: ['1', '2']\nzip_keys: [[transport, libwire]]\n"
    loaded = load_tree(_tree(tmp_path, **{"variants/udp.yaml": udp}))
    merged = merge_variant_files(files_of_stack(loaded, find_stack(loaded, None), "conda-forge", "linux-64"))
    assert merged.zip_keys == (("transport", "libwire"), ("alpha", "beta"))


def test_a_pinning_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pinning names 'elsewhere', but there is no file") as caught:
        load_tree(_tree(tmp_path, pinning="elsewhere"))
    assert caught.value.line == 1


_MIGRATION = "migrator_ts: 1\n__migrator:\n  exclude: [toy-plugin]\ntorch: ['2.14']\nalpha: [c, d]\n"


@pytest.mark.parametrize("folder", ["pinned/migrations", "pinned/share/conda-forge/migrations"])
def test_named_migrations_are_applied_but_not_to_recipes_that_they_exclude(tmp_path: Path, folder: str) -> None:
    stacks = "pinning: pinned\nmigrations: [torch214]\n" + FILES["variants/stacks.yaml"]
    files = {"variants/stacks.yaml": stacks, f"{folder}/torch214.yaml": _MIGRATION, f"{folder}/other.yaml": "broken"}
    loaded = load_tree(_tree(tmp_path, **files))
    stack = find_stack(loaded, None)
    assert merge_variant_files(files_of_stack(loaded, stack, "conda-forge", "linux-64")).values["torch"] == ("2.14",)
    packages = expand_stacks(loaded, [stack], foundation_kind="conda-forge", platform="linux-64")
    assert {package.variant["torch"] for package in packages if package.name == "toy-plugin"} == {"2.13"}
    assert {package.variant["alpha"] for package in packages if package.name == "toy-switch"} == {"c", "d"}
    chosen = choices_of_recipes(loaded, "conda-forge")
    assert sorted(chosen["toy-plugin"]["alpha"]) == ["a", "b"]
    assert sorted(chosen["toy-switch"]["alpha"]) == ["c", "d"]


@pytest.mark.parametrize(
    ("head", "line", "words", "hint"),
    [
        ("pinning: pinned\nmigrations:\n- torch213\n", 3, "no migration 'torch213'", "did you mean torch214"),
        ("migrations: [torch214]\n", 1, "there is no key pinning", "add pinning"),
    ],
)
def test_a_migration_that_is_not_there_lists_what_is(
    tmp_path: Path, head: str, line: int, words: str, hint: str
) -> None:
    files = {"variants/stacks.yaml": head + FILES["variants/stacks.yaml"]}
    tree = _tree(tmp_path, **files, **{"pinned/migrations/torch214.yaml": _MIGRATION})
    with pytest.raises(ConfigError, match=words) as caught:
        load_tree(tree)
    assert caught.value.line == line
    assert hint in str(caught.value.hint)


def test_our_tree_over_conda_forges_pinning(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    folder = conda_forge_folder()
    stacks = f"pinning: {folder}\n" + (root / "variants" / "stacks.yaml").read_text(encoding="utf-8")
    for name in ("recipes", "patches"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "variants").mkdir()
    for path in (root / "variants").glob("*.yaml"):
        content = stacks if path.name == "stacks.yaml" else path.read_text(encoding="utf-8")
        (tmp_path / "variants" / path.name).write_text(content, encoding="utf-8")
    loaded = load_tree(Tree(root=tmp_path))
    packages = expand_stacks(loaded, loaded.stacks.values(), foundation_kind="conda-forge", platform="linux-64")
    assert {package.variant["libhwloc"] for package in packages if "libhwloc" in package.variant} == {"2.13.0"}
    assert {package.variant["rdma_core"] for package in packages if "rdma_core" in package.variant} == {"63"}
    assert not [package for package in packages if "clang" in map(str, package.variant.values())]
