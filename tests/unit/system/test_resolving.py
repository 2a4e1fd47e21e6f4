# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.system.resolving import open_below


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "root" / "folder").mkdir(parents=True)
    (tmp_path / "root" / "folder" / "file").write_text("inside")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "root" / "near").symlink_to("folder/file")
    (tmp_path / "root" / "out").symlink_to("../outside")
    (tmp_path / "root" / "absolute").symlink_to(tmp_path / "outside")
    descriptor = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("name", ["folder/file", "near"])
def test_a_file_beneath_the_folder_is_opened_also_by_a_link(root: int, name: str) -> None:
    with open(open_below(root, name, os.O_RDONLY), encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        assert stream.read() == "inside"


@pytest.mark.parametrize("name", ["out", "absolute", "../outside"])
def test_nothing_outside_the_folder_is_opened(root: int, name: str) -> None:
    with pytest.raises(OSError, match="out of the folder"):
        open_below(root, name, os.O_RDONLY)
