# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from channel_tools.matrix import expand_stacks, load_tree
from channel_tools.requests.init import FeedstockRequest
from channel_tools.system.errors import UsageError
from channel_tools.system.settings import Settings, Tree
from channel_tools.system.source_files import link_target
from channel_tools.workflow.render import export_feedstock
from tests.unit.matrix.toytree import FILES, write_tree
from tests.unit.sources.toys import git

HOMEPAGE = "https://example.org/toy"


def settings_of(tree: Tree, folder: Path) -> Settings:
    return Settings(tree=tree, output=folder / "output", cache=folder / "cache")


def exported(
    tmp_path: Path,
    package: str,
    *,
    changes: dict[str, str] | None = None,
    maintainers: tuple[str, ...] = ("octocat",),
    homepage: str | None = HOMEPAGE,
) -> Path:
    tree = write_tree(tmp_path / "tree", {**FILES, **(changes or {})})
    request = FeedstockRequest(
        package=package, destination=tmp_path / "feedstock", maintainers=maintainers, homepage=homepage
    )
    return export_feedstock(settings_of(tree, tmp_path), request).folder


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


def test_it_has_links_as_links_and_nothing_that_git_ignores(tmp_path: Path) -> None:
    changes = {
        "recipes/libtoy/.gitignore": ".env\n*.dat\n",
        "recipes/libtoy/.env": "x",
        "recipes/libtoy/src/a.dat": "x",
    }
    (tmp_path / "tree" / "recipes" / "libtoy" / "src").mkdir(parents=True)
    git(tmp_path / "tree", "init", "-q")
    links = {"link.c": "toy.c", "folder": "proto", "dangling": "nowhere", "away": "/etc/hostname"}
    for name, target in links.items():
        (tmp_path / "tree" / "recipes" / "libtoy" / "src" / name).symlink_to(target)
    recipe = exported(tmp_path, "libtoy", changes=changes) / "recipe"
    assert {name: link_target(recipe / "src" / name) for name in links} == links
    assert {path.name for path in recipe.rglob("*") if path.suffix == ".dat" or path.name == ".env"} == set()


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
    ("package", "maintainers", "homepage", "words"),
    [
        ("libtoi", ("octocat",), HOMEPAGE, "'libtoi' is not a recipe of any stack"),
        ("libtoy", (), None, "needs a maintainer"),
        ("libtoy", ("octocat",), None, "about.homepage is missing"),
    ],
    ids=["unknown", "no maintainer", "no homepage"],
)
def test_what_is_missing_is_one_clear_error_and_nothing_is_written(
    tmp_path: Path, package: str, maintainers: tuple[str, ...], homepage: str | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        exported(tmp_path, package, maintainers=maintainers, homepage=homepage)
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


_PINNING = """\
c_compiler: [gcc]
c_compiler_version: ["15"]
libwire: ["9"]
python: ["3.10.*", "3.11.*"]
is_python_min: [true, false]
zip_keys: [[python, is_python_min]]
"""
_COMPILER = "c_compiler_version: ['15']\n"


@pytest.mark.parametrize(
    ("package", "of_conda_forge", "written"),
    [
        ("libtoy", _COMPILER, {"transport": ["udp"]}),
        ("libtoy", _COMPILER + "libwire: ['1.82']\n", {"transport": ["udp"], "libwire": ["1.82"]}),
        ("toy-plugin", _COMPILER, {"python": ["3.11.*", "3.12.*"], "is_python_min": ["false", "false"]}),
        ("toy-plugin", _COMPILER + "python: ['3.10.*', '3.11.*']\n", {}),
    ],
    ids=["as the pinning", "another version", "another Python", "the same Pythons"],
)
def test_what_differs_from_the_pinning_that_the_tree_names_is_written(
    tmp_path: Path, package: str, of_conda_forge: str, written: dict[str, list[str]]
) -> None:
    """conda-smithy takes the rest from conda-forge's pinning."""
    changes = {
        "variants/stacks.yaml": f"pinning: ./pinned\n{FILES['variants/stacks.yaml']}",
        "variants/foundation-conda-forge.yaml": of_conda_forge,
        "pinned/conda_build_config.yaml": _PINNING,
    }
    folder = exported(tmp_path, package, changes=changes)
    assert (yaml.safe_load((folder / "recipe" / "conda_build_config.yaml").read_text()) or {}) == written


def test_a_key_that_only_a_template_reads_has_a_value(tmp_path: Path) -> None:
    """Without it, the recipe does not render where conda-forge does not set the key."""
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace("context:\n", "context:\n  place: ${{ toy_mirror }}/toy\n")
    changes = {"recipes/libtoy/recipe.yaml": recipe, "variants/udp.yaml": "transport: [udp]\ntoy_mirror: [nowhere]\n"}
    folder = exported(tmp_path, "libtoy", changes=changes)
    config = yaml.safe_load((folder / "recipe" / "conda_build_config.yaml").read_text())
    assert config == {"transport": ["udp"], "toy_mirror": ["nowhere"]}
