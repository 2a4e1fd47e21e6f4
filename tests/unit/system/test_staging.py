# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.system.beneath import Beneath
from channel_tools.system.errors import ChannelError


def test_files_are_put_in_place_together_or_not_at_all(tmp_path: Path) -> None:
    files = Beneath(root=tmp_path)
    with files.staged([("a", b"1"), ("below/b", b"2")]) as staged:
        assert not (tmp_path / "a").exists()
        staged.put_in_place()
    assert ((tmp_path / "a").read_text(), (tmp_path / "below" / "b").read_text()) == ("1", "2")
    with files.staged([("a", b"other")]):
        pass  # not put in place
    assert (tmp_path / "a").read_text() == "1"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "below"]


def test_nothing_but_a_file_or_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with Beneath(root=tmp_path).staged([("folder", b"")]) as staged, pytest.raises(ChannelError, match="a folder"):
        staged.put_in_place()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_of_two_contents_for_one_name_the_last_stays(tmp_path: Path) -> None:
    with Beneath(root=tmp_path).staged([("a", b"1"), ("a", b"2")]) as staged:
        staged.put_in_place()
    assert (tmp_path / "a").read_text() == "2"
