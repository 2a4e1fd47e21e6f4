# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.matrix.bump import ChangedLine, changed_lines, check_version, renamed, with_hashes
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize("version", ["1.2.3", "2!1.0rc1", "1.0+local", "2026_1"])
def test_what_a_file_name_can_have_is_a_version(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["", "1.0-1", "v 1", "1/2"])
def test_anything_else_is_not(version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        check_version(version)


def test_a_version_is_replaced_where_it_stands_as_a_whole() -> None:
    assert renamed("patches/toy/1.0/0001.patch", "1.0", "1.1") == "patches/toy/1.1/0001.patch"
    assert renamed("toy-11.0/1.0.1/x", "1.0", "2.0") == "toy-11.0/1.0.1/x"


def test_hashes_are_replaced_in_every_file() -> None:
    texts = {Path("a"): "sha256: 1111", Path("b"): "rev: 2222, sha256: 1111"}
    assert with_hashes(texts, {"1111": "3333"}) == {Path("a"): "sha256: 3333", Path("b"): "rev: 2222, sha256: 3333"}


def test_only_lines_that_changed_are_shown() -> None:
    path = Path("recipe.yaml")
    assert changed_lines(path, "a\nb\nc\n", "a\nB\nc\n") == [ChangedLine(path=path, line=2, before="b", after="B")]
    assert changed_lines(path, "a\n", "a\n") == []
    assert changed_lines(path, "a\n", "a\nb\n") == [ChangedLine(path=path, line=2, before="", after="b")]
