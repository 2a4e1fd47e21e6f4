# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from channel_tools.system.entries import (
    link_or_copy_entry,
    made_folder,
    remove_entry,
    status_at,
    temporary_name,
    write_new,
)
from channel_tools.system.files import TEMPORARY_PREFIX


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_new_file_replaces_nothing_not_even_a_link(tmp_path: Path, folder: int) -> None:
    write_new(folder, "bytes", b"one")
    write_new(folder, "stream", io.BytesIO(b"two"))
    assert ((tmp_path / "bytes").read_text(), (tmp_path / "stream").read_text()) == ("one", "two")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("bytes", "link"):
        with pytest.raises(FileExistsError):
            write_new(folder, name, b"other")
    assert not (tmp_path / "elsewhere").exists()


def test_what_is_removed_is_the_link_and_not_what_it_leads_to(tmp_path: Path, folder: int) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept", target_is_directory=True)
    (tmp_path / "whole" / "below").mkdir(parents=True)
    for name in ("link", "whole", "absent"):
        remove_entry(folder, name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert status_at(folder, "link") is None


def test_folders_are_made_where_they_are_missing(tmp_path: Path, folder: int) -> None:
    (tmp_path / "a").mkdir()
    os.close(made_folder(folder, "a/b/c"))
    os.close(made_folder(folder, "a/b/c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_an_open_file_gets_another_name(tmp_path: Path, folder: int) -> None:
    (tmp_path / "one").write_bytes(b"content")
    with (tmp_path / "one").open("rb") as source:
        link_or_copy_entry(source, folder, "two")
    assert (tmp_path / "two").read_bytes() == b"content"


def test_a_temporary_name_is_one_that_leftovers_are_known_by() -> None:
    assert temporary_name().startswith(TEMPORARY_PREFIX)
    assert temporary_name() != temporary_name()
