# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from channel_tools.matrix import expand_stacks, find_stack, load_tree
from channel_tools.plan.inputs import TreeFiles, file_inputs
from channel_tools.system.errors import ConfigError
from channel_tools.system.source_files import copy_source_file, link_target
from tests.unit.matrix.toytree import FILES, PLATFORM, write_tree
from tests.unit.sources.toys import git

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.plan import BuildFile

RECIPE = "recipes/libtoy/recipe.yaml"


def _files(
    root: Path, changes: Mapping[str, str | None] | None = None, *, package: str = "libtoy"
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


def _link(root: Path, name: str, target: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target)


@pytest.mark.parametrize(
    "target", ["toy.c", "proto", "nowhere", "/etc/hostname", "../../../LICENSE", "../build.sh", ".", "proto/"]
)
def test_a_link_in_a_source_stays_a_link(tmp_path: Path, target: str) -> None:
    write_tree(tmp_path)
    before = file_inputs(_files(tmp_path).values())
    _link(tmp_path, "recipes/libtoy/src/link", target)
    file = _files(tmp_path)["src/link"]
    assert (file.link, file.target) == (target, "src/link")
    copy_source_file(file.path, tmp_path / "copy" / file.target, follow=file.link is None)
    assert link_target(tmp_path / "copy" / "src" / "link") == target
    assert file_inputs(_files(tmp_path).values()) == before | {"file:src/link": f"-> {target}"}


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("extra.sh", "../toy-switch/src/switch.c", {"extra.sh": "switch"}),
        ("tests", "../toy-switch/src", {"tests/switch.c": "switch"}),
        ("more.sh", "build.sh", {"more.sh": "-> build.sh"}),
        ("data", "src/proto", {"data": "-> src/proto"}),
        ("data", "nowhere", {"data": "-> nowhere"}),
    ],
    ids=["file", "folder", "file-beside", "folder-beside", "dangling"],
)
def test_a_link_beside_a_recipe_brings_what_is_not_beside_it(
    tmp_path: Path, name: str, target: str, expected: dict[str, str]
) -> None:
    changes: dict[str, str | None] = {"recipes/toy-switch/src/switch.c": "switch"}
    before = _files(tmp_path, changes)
    _link(tmp_path, f"recipes/libtoy/{name}", target)
    files = {each: file for each, file in _files(tmp_path, changes).items() if each not in before}
    contents = {each: file.path.read_text() if file.link is None else f"-> {file.link}" for each, file in files.items()}
    assert contents == expected


@pytest.mark.parametrize(
    ("name", "is_folder"),
    [
        ("recipes/libtoy/build.sh", False),
        ("recipes/libtoy/tests", True),
        ("recipes/libtoy/src", True),
        ("patches/libtoy/0001-louder.patch", False),
        ("patches/libtoy", True),
        ("LICENSE", False),
    ],
)
def test_a_link_to_what_is_outside_the_tree_is_refused(tmp_path: Path, name: str, is_folder: bool) -> None:  # noqa: FBT001 - a row
    root, outside = tmp_path / "tree", tmp_path / "outside"
    write_tree(root)
    path = root / name
    if path.exists():
        path.rename(outside)
    elif is_folder:
        write_tree(outside)
    path.symlink_to(outside)
    with pytest.raises(ConfigError, match=f"leads by a link to {outside}.*, which is outside the tree"):
        _files(root)


def test_a_source_that_is_a_link_to_a_folder_of_the_tree_has_its_files(tmp_path: Path) -> None:
    write_tree(tmp_path)
    before = file_inputs(_files(tmp_path).values())
    (tmp_path / "recipes/libtoy/src").rename(tmp_path / "shared")
    _link(tmp_path, "recipes/libtoy/src", "../../shared")
    assert file_inputs(_files(tmp_path).values()) == before


IGNORED = {
    ".gitignore": "/output/\n.env\n",
    "recipes/libtoy/.env": "PASSWORD=made-up\n",
    "recipes/libtoy/src/.gitignore": "*.dat\ngen/\n",
    "recipes/libtoy/src/.env": "PASSWORD=made-up\n",
    "recipes/libtoy/src/big.dat": "x",
    "recipes/libtoy/src/kept.dat": "tracked all the same",
    "recipes/libtoy/src/gen/g.txt": "x",
    "recipes/libtoy/src/new.txt": "neither tracked nor ignored",
}
ABSENT = {".env", "src/.env", "src/big.dat", "src/gen/g.txt"}


@pytest.mark.parametrize("place", ["", "within/another"])
def test_what_git_ignores_is_no_part(tmp_path: Path, place: str) -> None:
    root = tmp_path / place
    write_tree(root, IGNORED)
    every = _files(root)
    assert every.keys() >= ABSENT, "there is no repository"
    git(tmp_path, "init", "-q")
    git(root, "add", "-f", "recipes/libtoy/src/kept.dat")
    files = _files(root)
    assert every.keys() - files.keys() == ABSENT
    assert {name: file for name, file in every.items() if name not in ABSENT} == files


def test_what_git_ignores_is_part_of_a_source_that_takes_all(tmp_path: Path) -> None:
    recipe = FILES[RECIPE].replace(
        "  - path: src\n    patches",
        "  - path: src\n    use_gitignore: false\n    target_directory: whole\n"
        "  - path: src\n    filter: ['**/*']\n    patches",
    )
    write_tree(tmp_path)
    git(tmp_path, "init", "-q")
    files = _files(tmp_path, IGNORED | {RECIPE: recipe})
    assert {name for name, file in files.items() if file.is_ignored} == ABSENT - {".env"} | {"src/kept.dat"}
    assert ".env" not in files


def test_a_tree_in_a_place_that_git_ignores_has_all_its_files(tmp_path: Path) -> None:
    root = tmp_path / "output" / "tree"
    write_tree(root)
    before = _files(root)
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("output/\n")
    assert _files(root) == before


def test_a_repository_within_the_tree_says_what_it_ignores(tmp_path: Path) -> None:
    write_tree(tmp_path, {"recipes/libtoy/src/.gitignore": "*.dat\n", "recipes/libtoy/src/a.dat": "x"})
    git(tmp_path, "init", "-q")
    git(tmp_path / "recipes/libtoy/src", "init", "-q")
    assert "src/a.dat" not in _files(tmp_path)


def test_a_file_whose_name_is_no_utf_8_can_be_ignored(tmp_path: Path) -> None:
    write_tree(tmp_path, {"recipes/libtoy/src/.gitignore": "*.dat\n"})
    (tmp_path / "recipes/libtoy/src" / os.fsdecode(b"\xfc.dat")).touch()
    git(tmp_path, "init", "-q")
    assert [name for name in _files(tmp_path) if name.endswith(".dat")] == []
