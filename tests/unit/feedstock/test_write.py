# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from channel_tools.feedstock import FeedstockRequest
from channel_tools.feedstock.write import feedstock_variants
from channel_tools.matrix import RenderedPackage, VariantScalar, expand_stacks, load_tree
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.render import export_feedstock
from tests.unit.matrix.toytree import FILES, write_tree

REQUEST = FeedstockRequest(maintainers=("octocat",), homepage="https://example.org/toy")


def settings_of(tree: Tree, folder: Path) -> Settings:
    return Settings(tree=tree, output=folder / "output", cache=folder / "cache")


def exported(
    tmp_path: Path, package: str, *, changes: dict[str, str] | None = None, request: FeedstockRequest = REQUEST
) -> Path:
    tree = write_tree(tmp_path / "tree", {**FILES, **(changes or {})})
    return export_feedstock(
        settings_of(tree, tmp_path), package, tmp_path / "feedstock", stack=None, request=request
    ).folder


def test_it_holds_the_recipe_its_files_and_the_settings(tmp_path: Path) -> None:
    folder = exported(tmp_path, "libtoy")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == [
        "conda-forge.yml",
        "recipe/_tree/LICENSE",
        "recipe/_tree/patches/libtoy/0001-louder.patch",
        "recipe/build.sh",
        "recipe/conda_build_config.yaml",
        "recipe/recipe.yaml",
        "recipe/src/proto/toy.proto",
        "recipe/src/toy.c",
    ]
    assert yaml.safe_load((folder / "conda-forge.yml").read_text())["provider"] == {
        "linux_64": "azure",
        "linux_aarch64": "azure",
        "osx_64": None,
        "win_64": None,
    }


def test_only_paths_homepage_and_maintainers_of_the_recipe_change(tmp_path: Path) -> None:
    text = (exported(tmp_path, "libtoy") / "recipe" / "recipe.yaml").read_text()
    expected = FILES["recipes/libtoy/recipe.yaml"]
    expected = expected.replace("../../patches/libtoy", "_tree/patches/libtoy").replace(
        "../../LICENSE", "_tree/LICENSE"
    )
    expected = expected.replace("about:\n", "about:\n  homepage: https://example.org/toy\n")
    assert text == expected + "\nextra:\n  recipe-maintainers: [octocat]\n"


def test_it_renders_to_the_variants_of_the_stack(tmp_path: Path) -> None:
    """The feedstock's own file over a stand-in for conda-forge's pins gives what the tree gives on conda-forge."""
    folder = exported(tmp_path, "toy-plugin")
    config = yaml.safe_load((folder / "recipe" / "conda_build_config.yaml").read_text()) or {}
    again = write_tree(
        tmp_path / "again",
        {
            **FILES,
            "recipes/toy-plugin/recipe.yaml": (folder / "recipe" / "recipe.yaml").read_text(),
            "variants/udp.yaml": yaml.safe_dump(config | {"transport": ["udp"]}),
        },
    )
    strings = [
        sorted(
            package.engine_build_string
            for package in expand_stacks(
                loaded, [loaded.stacks["udp"]], foundation_kind="conda-forge", platform="linux-64"
            )
            if package.name == "toy-plugin"
        )
        for loaded in (load_tree(again), load_tree(Tree(root=tmp_path / "tree")))
    ]
    assert strings[0] == strings[1] != []


def test_templates_in_outside_paths_stay_templates(tmp_path: Path) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace(
        "../../patches/libtoy/0001-louder.patch", '"../../patches/libtoy/${{ version }}/0001-louder.patch"'
    )
    changes = {"recipes/libtoy/recipe.yaml": recipe, "patches/libtoy/1.2.0/0001-louder.patch": "--- a/toy.c\n"}
    folder = exported(tmp_path, "libtoy", changes=changes)
    source = yaml.safe_load((folder / "recipe" / "recipe.yaml").read_text())["source"]
    assert source[0]["patches"] == ["_tree/patches/libtoy/${{ version }}/0001-louder.patch"]
    assert (folder / "recipe" / "_tree" / "patches" / "libtoy" / "1.2.0" / "0001-louder.patch").is_file()


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("extra: {note: 1}\n", {"note": 1, "recipe-maintainers": ["octocat"]}),
        ("extra:\n    note: 1\n", {"note": 1, "recipe-maintainers": ["octocat"]}),
        ("extra:\n  recipe-maintainers:\n    - hubot\n", {"recipe-maintainers": ["hubot"]}),
    ],
    ids=["flow", "block", "named already"],
)
def test_what_the_recipe_says_in_extra_is_kept(tmp_path: Path, section: str, expected: dict[str, object]) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"] + section
    folder = exported(tmp_path, "libtoy", changes={"recipes/libtoy/recipe.yaml": recipe})
    assert yaml.safe_load((folder / "recipe" / "recipe.yaml").read_text())["extra"] == expected


@pytest.mark.parametrize(
    ("package", "request_", "words"),
    [
        ("libtoi", REQUEST, "'libtoi' is not a recipe of any stack"),
        ("libtoy", FeedstockRequest(maintainers=()), "needs a maintainer"),
        ("libtoy", FeedstockRequest(maintainers=("octocat",)), "about.homepage is missing"),
    ],
    ids=["unknown", "no maintainer", "no homepage"],
)
def test_what_is_missing_is_one_clear_error_and_nothing_is_written(
    tmp_path: Path, package: str, request_: FeedstockRequest, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        exported(tmp_path, package, request=request_)
    assert caught.value.hint
    assert not (tmp_path / "feedstock").exists()


def test_a_recipe_that_conda_forge_skips_is_no_unknown_name(tmp_path: Path) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace("  number: 0\n", "  number: 0\n  skip: true\n", 1)
    with pytest.raises(
        UsageError, match="'libtoy' has no variant on conda-forge in any stack: its recipe skips"
    ) as caught:
        exported(tmp_path, "libtoy", changes={"recipes/libtoy/recipe.yaml": recipe})
    assert "channel_tools render" in str(caught.value.hint)
    assert not (tmp_path / "feedstock").exists()


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "feedstock").mkdir()
    (tmp_path / "feedstock" / "mine").touch()
    with pytest.raises(UsageError, match="exists; expected a new folder for the feedstock"):
        exported(tmp_path, "libtoy")
    assert [path.name for path in (tmp_path / "feedstock").iterdir()] == ["mine"]


Variant = dict[str, VariantScalar]
PINNED = frozenset({"python", "c_compiler_version"})
BASE = {"python": ("3.11", "3.12"), "c_compiler_version": ("15",)}


@pytest.fixture
def package(tmp_path: Path) -> RenderedPackage:
    loaded = load_tree(write_tree(tmp_path, FILES))
    return expand_stacks(loaded, [loaded.stacks["udp"]], foundation_kind="conda-forge", platform="linux-64")[0]


@pytest.mark.parametrize(
    ("variants", "keys", "zipped"),
    [
        ([{"a": "1", "target_platform": "linux-64"}], {"a": ("1",)}, ()),
        ([{"a": "1"}, {"a": "2"}, {"a": "1"}], {"a": ("1", "2")}, ()),
        (
            [{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}],
            {"a": ("1", "2"), "b": ("x", "y")},
            (),
        ),
        (
            [{"a": "1", "b": "x", "c": "0"}, {"a": "2", "b": "y", "c": "0"}, {"a": "2", "b": "x", "c": "0"}],
            {"a": ("1", "2", "2"), "b": ("x", "y", "x"), "c": ("0",)},
            ("a", "b"),
        ),
        ([{"a": "1", "python": "3.11"}, {"a": "1", "python": "3.12"}], {"a": ("1",)}, ()),
        (
            [{"a": "1", "python": "3.9"}],
            {"a": ("1",), "python": ("3.9",), "is_python_min": ("false",)},
            (),
        ),
        (
            [{"a": "1", "c_compiler_version": "10"}],
            {"a": ("1",), "c_compiler_version": ("10",), "fortran_compiler_version": ("10",)},
            (),
        ),
        ([{"python": "3.11"}, {"python": "3.12"}], {}, ()),
    ],
    ids=["one", "list", "product", "zipped", "as conda-forge", "other python", "other compiler", "nothing of its own"],
)
def test_the_keys_and_what_moves_together(
    package: RenderedPackage, variants: list[Variant], keys: dict[str, tuple[str, ...]], zipped: tuple[str, ...]
) -> None:
    rendered = [replace(package, variant=variant) for variant in variants]
    assert feedstock_variants(rendered, pinned=PINNED, base=BASE) == (keys, zipped)


def test_what_conda_forge_zips_with_cuda_is_given_in_full(package: RenderedPackage) -> None:
    variants: list[Variant] = [
        {"cuda_compiler_version": cuda, "c_compiler_version": "12", "cxx_compiler_version": "12"}
        for cuda in ("None", "12.2")
    ]
    rendered = [replace(package, variant=variant) for variant in variants]
    pinned = PINNED | {"cuda_compiler_version", "cxx_compiler_version"}
    assert feedstock_variants(rendered, pinned=pinned, base=BASE | {"c_stdlib_version": ("2.17",)}) == (
        {
            "c_compiler_version": ("12", "12"),
            "cxx_compiler_version": ("12", "12"),
            "fortran_compiler_version": ("12", "12"),
            "c_stdlib_version": ("2.17", "2.17"),
            "cuda_compiler_version": ("None", "12.2"),
        },
        (),
    )


def test_of_stacks_that_disagree_the_one_that_agrees_with_conda_forge_counts(package: RenderedPackage) -> None:
    rendered = [
        replace(package, stack="new", variant={"a": "1", "c_compiler_version": "15"}),
        replace(package, stack="old", variant={"a": "1", "c_compiler_version": "10"}),
    ]
    assert feedstock_variants(rendered, pinned=PINNED, base=BASE) == ({"a": ("1",)}, ())


def test_stacks_that_disagree_among_themselves_are_an_error(package: RenderedPackage) -> None:
    rendered = [
        replace(package, stack="middle", variant={"c_compiler_version": "12"}),
        replace(package, stack="old", variant={"c_compiler_version": "10"}),
    ]
    with pytest.raises(UsageError, match=r"different values of c_compiler_version \(middle: 12; old: 10\)") as caught:
        feedstock_variants(rendered, pinned=PINNED, base=BASE)
    assert caught.value.hint == "give --variant with one of middle, old"
