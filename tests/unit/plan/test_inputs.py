# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.plan.inputs import TreeFiles
from channel_tools.system.errors import ConfigError
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.plan import BuildFile

RECIPE = "recipes/libtoy/recipe.yaml"


def _files(
    root: Path, changes: dict[str, str | None] | None = None, *, package: str = "libtoy"
) -> dict[str, BuildFile]:
    loaded = load_tree(write_tree(root, changes))
    packages = expand_stacks(loaded, [find_stack(loaded, None)], foundation_kind="registry", platform=PLATFORM)
    rendered = next(item for item in packages if item.name == package)
    return {file.name: file for file in TreeFiles(root).of_build(rendered)}


def test_the_recipe_folder_its_patches_and_its_licence_go_into_the_build(tmp_path: Path) -> None:
    files = _files(tmp_path)
    assert {name: file.target for name, file in files.items()} == {
        "build.sh": "build.sh",
        "src/toy.c": "src/toy.c",
        "src/proto/toy.proto": "src/proto/toy.proto",
        "../../patches/libtoy/0001-louder.patch": "_tree/patches/libtoy/0001-louder.patch",
        "../../LICENSE": "_tree/LICENSE",
    }


def test_sources_of_another_recipe_are_taken_along(tmp_path: Path) -> None:
    files = _files(tmp_path, package="toy-switch")
    assert files["../libtoy/src/proto/toy.proto"].target == "_tree/recipes/libtoy/src/proto/toy.proto"
    assert "../libtoy/src/toy.c" not in files


@pytest.mark.parametrize(
    "name",
    [
        "src/__pycache__/toy.cpython-311.pyc",
        "src/build/toy.o",
        "src/build-debug/toy.o",
        "src/cmake-build-release/CMakeCache.txt",
        "src/toy.egg-info/PKG-INFO",
        "src/.pytest_cache/x",
        "src/.git/HEAD",
        "src/toy.c~",
        "src/.toy.c.swp",
        "README.md",
        "variants.yaml",
    ],
)
def test_what_builds_and_editors_leave_is_no_part(tmp_path: Path, name: str) -> None:
    before = _files(tmp_path)
    assert _files(tmp_path, {f"recipes/libtoy/{name}": "left behind\n"}) == before


def test_a_python_package_named_as_what_builds_leave_is_part(tmp_path: Path) -> None:
    files = _files(tmp_path, {f"recipes/libtoy/src/build/{name}.py": "x = 1\n" for name in ("__init__", "run")})
    assert {"src/build/__init__.py", "src/build/run.py"} <= files.keys()


def test_readme_files_of_the_sources_are_part(tmp_path: Path) -> None:
    assert "src/README.md" in _files(tmp_path, {"recipes/libtoy/src/README.md": "x\n"})


def test_a_readme_that_the_recipe_names_is_part(tmp_path: Path) -> None:
    recipe = FILES[RECIPE].replace("../../LICENSE", "README.md")
    assert "README.md" in _files(tmp_path, {RECIPE: recipe})


def test_being_executable_is_seen(tmp_path: Path) -> None:
    assert not _files(tmp_path)["build.sh"].executable
    (tmp_path / "recipes/libtoy/build.sh").chmod(0o755)
    assert _files(tmp_path)["build.sh"].executable


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0001-louder.patch", "0002-softer.patch", "0002-softer.patch, which does not exist"),
        ("path: src", "path: sources", "names sources, which does not exist"),
        ("path: src", "path: ../../../elsewhere", "is outside the tree"),
        ("../../LICENSE", "../../COPYING", "names ../../COPYING, which does not exist"),
    ],
)
def test_a_file_that_the_recipe_names_must_be_there(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _files(tmp_path, {RECIPE: FILES[RECIPE].replace(old, new)})
    assert caught.value.path == tmp_path / RECIPE
    assert caught.value.line is not None
    assert caught.value.line > 1


def test_a_script_in_the_recipe_must_not_leave_its_folder(tmp_path: Path) -> None:
    recipe = FILES[RECIPE].replace("  number: 0\n", "  number: 0\n  script: [cp $RECIPE_DIR/../x .]\n")
    with pytest.raises(ConfigError, match=r"uses files outside the recipe's folder") as caught:
        _files(tmp_path, {RECIPE: recipe})
    assert caught.value.path == tmp_path / RECIPE


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("set -e\ncd x\r\nmake\r\n", 2, "line endings of Windows"),
        ("#!/bin/bash\r\nmake\r\n", 1, "line endings of Windows"),
        ("\ufeffset -e\n", 1, "byte order mark"),
    ],
    ids=["CRLF", "CRLF after the interpreter", "BOM"],
)
@pytest.mark.parametrize("name", ["build.sh", "tests/run.sh", "helpers.bash"])
def test_a_script_saved_on_windows_is_named_before_it_is_run(
    tmp_path: Path, name: str, content: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        _files(tmp_path, {f"recipes/libtoy/{name}": content})
    path = tmp_path / "recipes/libtoy" / name
    assert (caught.value.path, caught.value.line) == (path, line)
    subprocess.run(["/bin/sh", "-c", str(caught.value.hint).partition(": ")[2]], check=True)
    assert b"\r" not in path.read_bytes()
    assert path.read_bytes()[:1] in {b"#", b"s"}


def test_files_for_windows_may_have_its_line_endings(tmp_path: Path) -> None:
    _files(tmp_path, {"recipes/libtoy/bld.bat": "make\r\n", "recipes/libtoy/src/text.txt": "text\r\n"})


def test_a_script_must_not_leave_its_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"uses files outside the recipe's folder") as caught:
        _files(tmp_path, {"recipes/libtoy/build.sh": 'set -e\ncp "${RECIPE_DIR}/../other/x" .\n'})
    assert (caught.value.path, caught.value.line) == (tmp_path / "recipes/libtoy/build.sh", 2)
