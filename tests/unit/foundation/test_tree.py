# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.worker import UNKNOWN_LICENSE, deb_licenses, prune, wheel_licenses
from channel_tools.system.errors import FoundationError
from channel_tools.system.files import tree_files

if TYPE_CHECKING:
    from pathlib import Path

DEP5 = """\
Format: https://example.org/copyright-format/1.0/

Files: *
Copyright: 2020 somebody
License: Expat

Files: debian/*
Copyright: 2021 somebody
License: GPL-2+
"""


def _tree(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


@pytest.mark.parametrize(
    ("keep", "drop", "left"),
    [
        ([], [], ["bin/a", "lib/b.so", "share/doc/a/x", "share/y"]),
        ([], ["share/doc"], ["bin/a", "lib/b.so", "share/y"]),
        (["lib/*.so"], [], ["lib/b.so"]),
        (["share"], ["*/x"], ["share/y"]),
        ([], ["share/do"], ["bin/a", "lib/b.so", "share/doc/a/x", "share/y"]),
    ],
    ids=["all", "drop-folder", "keep", "both", "no-prefix-match"],
)
def test_keep_and_drop(tmp_path: Path, keep: list[str], drop: list[str], left: list[str]) -> None:
    tree = _tree(tmp_path, "bin/a", "lib/b.so", "share/doc/a/x", "share/y")
    prune(tree, keep=keep, drop=drop)
    assert list(tree_files(tree)) == left


def test_folders_left_empty_go(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "share/doc/a/x", "bin/a")
    prune(tree, keep=[], drop=["share"])
    assert [path.name for path in tree.iterdir()] == ["bin"]


def test_a_keep_glob_without_a_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"keep glob 'lib/\*\.so' matches none of 1 file"):
        prune(_tree(tmp_path, "bin/a"), keep=["bin", "lib/*.so"], drop=[])


def test_links_to_folders_count_as_files(tmp_path: Path) -> None:
    tree = _tree(tmp_path, "a/x")
    (tree / "b").symlink_to("a")
    assert list(tree_files(tree)) == ["a/x", "b"]


def test_the_license_of_a_deb_is_that_of_its_files_in_general(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    _tree(tree, "usr/share/doc/one/copyright", "usr/share/doc/two/copyright")
    (tree / "usr/share/doc/one/copyright").write_text("no special form")
    (tree / "usr/share/doc/two/copyright").write_text(DEP5)
    assert deb_licenses(tree, ["one", "two", "three"], tmp_path / "out") == "Expat"
    assert (tmp_path / "out/two/copyright").read_text() == DEP5
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one", "two"]


def test_a_deb_without_a_machine_readable_license_says_so(tmp_path: Path) -> None:
    assert deb_licenses(tmp_path, ["one"], tmp_path / "out") == UNKNOWN_LICENSE


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"license_expression": "MIT", "license": "other"}, "MIT"),
        ({"license": "BSD"}, "BSD"),
        ({"license": "a\nlong\ntext", "classifiers": ["License :: OSI Approved :: MIT License"]}, "MIT License"),
        ({}, UNKNOWN_LICENSE),
    ],
)
def test_the_license_of_a_wheel(tmp_path: Path, metadata: dict[str, object], expected: str) -> None:
    tree = _tree(tmp_path / "tree", "x.dist-info/licenses/LICENSE", "x.dist-info/METADATA")
    assert wheel_licenses(tree, "x.dist-info", metadata, tmp_path / "out") == expected
    assert list(tree_files(tmp_path / "out")) == ["x.dist-info/licenses/LICENSE"]
