# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

from channel_tools.plan import render_folder
from channel_tools.system.errors import ConfigError, UsageError
from channel_tools.system.settings import Tree
from tests.support.golden import assert_golden
from tests.unit.matrix.toytree import FILES, PLATFORM
from tests.unit.plan.conftest import by_name

if TYPE_CHECKING:
    from channel_tools.plan import PlannedPackage
    from tests.unit.plan.conftest import Toy

GOLDEN = Path(__file__).parent / "golden"
PACKAGES = ["libtoy", "toy-switch", "toy-plugin", "toy-meta"]


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def _render(toy: Toy, package: PlannedPackage, destination: str = "rendered") -> Path:
    return render_folder(package, toy.root / destination, tree=Tree(root=toy.tree_root))


@pytest.mark.parametrize("name", PACKAGES)
def test_the_rendered_recipe(toy: Toy, name: str) -> None:
    folder = _render(toy, by_name(toy.plan())[name])
    assert_golden(GOLDEN / "rendered" / f"{name}.yaml", (folder / "recipe.yaml").read_text(encoding="utf-8"))
    assert_golden(GOLDEN / "rendered" / f"{name}-variants.yaml", (folder / "variants.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PACKAGES)
def test_the_engine_gives_the_planned_name_and_content(toy: Toy, name: str) -> None:
    package = by_name(toy.plan())[name]
    folder = _render(toy, package)
    recipe = Stage0Recipe.from_file(folder / "recipe.yaml")
    config = RenderConfig(platform=PlatformConfig(target_platform=PLATFORM))
    (variant,) = recipe.render(VariantConfig.from_file(folder / "variants.yaml"), config)
    result = variant.recipe.to_dict()
    assert result["build"]["string"] == package.build_string
    assert variant.variant == dict(package.rendered.variant)
    original = package.rendered.recipe
    for section in ("package", "tests", "context"):
        assert result.get(section) == original.get(section)
    assert result["extra"]["channel_tools"]["digest"] == package.digest
    assert result["extra"]["channel_tools"]["inputs"] == dict(package.inputs)


def test_nothing_points_outside(toy: Toy) -> None:
    for package in toy.plan().packages:
        for name, content in _content(_render(toy, package)).items():
            lines = content.decode().splitlines()
            kept = [line for line in lines if not line.strip().startswith(("file:", "source:"))]
            assert not [line for line in kept if "../" in line or str(toy.root) in line], name


def test_rendering_twice_gives_the_same_bytes(toy: Toy) -> None:
    package = by_name(toy.plan())["libtoy"]
    first = _content(_render(toy, package))
    assert _content(_render(toy, package)) == first
    assert _content(_render(toy, package, "elsewhere")) == first
    assert [path.name for path in (toy.root / "rendered").iterdir()] == [package.folder_name]


def test_a_folder_made_before_is_replaced_whole(toy: Toy) -> None:
    package = by_name(toy.plan())["libtoy"]
    folder = _render(toy, package)
    before = _content(folder)
    (folder / "build.sh").write_text("false\n", encoding="utf-8")
    (folder / "stale.txt").write_text("left over\n", encoding="utf-8")
    assert _content(_render(toy, package)) == before


def test_a_file_that_changed_since_the_plan_is_not_built_under_its_name(toy: Toy) -> None:
    package = by_name(toy.plan())["libtoy"]
    source = toy.tree_root / "recipes/libtoy/src/toy.c"
    source.write_text("int toy(void) { return 2; }\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{re.escape(str(source))}: the file changed after the build was planned"):
        _render(toy, package)
    assert not any((toy.root / "rendered").iterdir())


def test_foreign_files_are_left_alone(toy: Toy) -> None:
    package = by_name(toy.plan())["libtoy"]
    taken = toy.root / "rendered" / package.folder_name
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not a rendered recipe of this package; nothing was changed"):
        _render(toy, package)
    assert _content(taken) == {"notes.txt": b"mine\n"}


@pytest.mark.parametrize("place", [".", "recipes", "recipes/libtoy/src", "variants/x", "patches"])
def test_the_trees_own_folders_are_refused(toy: Toy, place: str) -> None:
    package = by_name(toy.plan())["libtoy"]
    with pytest.raises(UsageError, match=r"tree itself|from which recipes are rendered"):
        _render(toy, package, f"tree/{place}")


def test_a_file_is_refused_as_destination(toy: Toy) -> None:
    package = by_name(toy.plan())["libtoy"]
    (toy.root / "rendered").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is a file"):
        _render(toy, package)


def test_executable_scripts_stay_executable(toy: Toy) -> None:
    toy.tree()
    (toy.tree_root / "recipes/libtoy/build.sh").chmod(0o700)
    folder = _render(toy, by_name(toy.plan())["libtoy"])
    assert (folder / "build.sh").stat().st_mode & 0o777 == 0o755
    assert (folder / "src/toy.c").stat().st_mode & 0o777 == 0o644


def test_use_keys_of_the_recipe_and_ignored_keys(toy: Toy) -> None:
    recipe = FILES["recipes/libtoy/recipe.yaml"].replace(
        "  number: 0\n", "  number: 0\n  variant: {ignore_keys: [libwire], down_prioritize_variant: 1}\n"
    )
    package = by_name(toy.plan({"recipes/libtoy/recipe.yaml": recipe}))["libtoy"]
    text = (_render(toy, package) / "recipe.yaml").read_text(encoding="utf-8")
    assert "ignore_keys" not in text
    assert "down_prioritize_variant: 1" in text
