# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
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


@pytest.mark.parametrize(
    ("head", "said", "hint"),
    [
        (
            "pinning: elsewhere",
            "pinning names 'elsewhere', but there is no file",
            "name the path of a conda_build_conf",
        ),
        (
            "pinning: 2026.8.12",
            "pinning names '2026.8.12'",
            "take conda_build_config.yaml of conda-forge-pinning 2026.8",
        ),
        ("pinning: 2026.8.13", "pinning names '2026.8.13'", "pinning: locks/conda-forge-pinning/2026.8.13"),
        ("migrations: [torch214]", "migrations are no longer applied", "write their values into a variant file"),
    ],
    ids=["no path", "version", "version that a tree of 0.2 has", "migrations"],
)
def test_a_pinning_that_is_not_there_is_named(tmp_path: Path, head: str, said: str, hint: str) -> None:
    """With what to do in a tree of channel_tools 0.2, where versions and migrations could be named."""
    kept = {"locks/conda-forge-pinning/2026.8.13/conda_build_config.yaml": _PINNING}
    with pytest.raises(ConfigError, match=said) as caught:
        load_tree(_tree(tmp_path, **{"variants/stacks.yaml": f"{head}\n{FILES['variants/stacks.yaml']}", **kept}))
    assert caught.value.line == 1
    assert hint in str(caught.value.hint)


def test_the_file_that_a_tree_of_0_2_has_of_a_version_is_read_by_its_path(tmp_path: Path) -> None:
    kept = "locks/conda-forge-pinning/2026.8.13"
    loaded = load_tree(_tree(tmp_path, pinning=kept, **{f"{kept}/conda_build_config.yaml": _PINNING}))
    assert loaded.pinning is not None
    assert loaded.pinning.on("linux-64").values["torch"] == ("2.13",)


@pytest.mark.slow
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
