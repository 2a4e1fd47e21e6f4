# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from channel_tools.system import work_folder
from channel_tools.system.errors import UsageError
from channel_tools.system.work_folder import MAX_WORK_PATH_BYTES, choose_work_folder, is_plain, make_work_folder

CACHE = Path("/home/me/.cache/channel_tools")

ODD = [
    pytest.param("/home/me/my tree", id="blank"),
    pytest.param("/home/jürgen/tree", id="umlaut"),
    pytest.param("/home/me/$;&(", id="shell"),
    pytest.param("/home/me/a:b", id="colon"),
    pytest.param("/home/me/a,b", id="comma"),
    pytest.param("/home/me/50%#1", id="percent"),
    pytest.param("/home/me/a=b", id="equals"),
    pytest.param("/home/me/a\nb", id="newline"),
    pytest.param("/home/me/a\n", id="newline-last"),
    pytest.param("/home/me/" + "a" * 200, id="long"),
    pytest.param("/home/me/'\"\\`*?[]{}<>|!^", id="punctuation"),
    pytest.param(os.fsdecode(b"/home/me/\xff"), id="not-utf-8"),
]


def test_a_plain_output_holds_its_own_work() -> None:
    assert choose_work_folder(output=Path("/srv/tree/output"), cache=CACHE, environ={}) == Path("/srv/tree/output/work")


@pytest.mark.parametrize("output", ODD)
def test_an_odd_output_is_worked_on_in_the_cache(output: str) -> None:
    chosen = choose_work_folder(output=Path(output), cache=CACHE, environ={"TMPDIR": "/scratch"})
    assert chosen.parent == CACHE / "work"
    assert is_plain(chosen)
    assert chosen == choose_work_folder(output=Path(output), cache=CACHE, environ={})
    assert chosen != choose_work_folder(output=Path(output, "2"), cache=CACHE, environ={})


@pytest.mark.parametrize("cache", ODD)
def test_an_odd_cache_gives_way_to_the_temporary_folder(cache: str) -> None:
    ours = f"channel_tools-{os.geteuid()}"
    odd = Path(cache)
    chosen = choose_work_folder(output=odd / "output", cache=odd, environ={"TMPDIR": "/scratch"})
    assert chosen.parent == Path("/scratch", ours)
    for temporary in ({}, {"TMPDIR": cache}, {"TMPDIR": "relative"}):
        chosen = choose_work_folder(output=odd / "output", cache=odd, environ=temporary)
        assert chosen.parent == Path("/var/tmp", ours)  # noqa: S108 - only its name


def test_a_plain_path_that_links_to_an_odd_one_is_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folder, "MAX_WORK_PATH_BYTES", 4096)
    (tmp_path / "my tree").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "my tree")
    assert not is_plain(tmp_path / "link" / "work")
    assert is_plain(tmp_path / "work")


def test_the_longest_path_is_plain_and_a_longer_one_is_not() -> None:
    assert is_plain(Path("/" + "a" * (MAX_WORK_PATH_BYTES - 1)))
    assert not is_plain(Path("/" + "a" * MAX_WORK_PATH_BYTES))


def test_what_is_made_in_a_shared_folder_is_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / f"channel_tools-{os.geteuid()}" / "key"
    for _again in range(2):
        make_work_folder(folder)
        assert {path.stat().st_mode & 0o777 for path in (folder, folder.parent)} == {0o700}


def test_what_is_made_elsewhere_than_in_the_output_is_ours_alone(tmp_path: Path) -> None:
    chosen = choose_work_folder(output=tmp_path / "my tree", cache=Path("/c"), environ={})
    folder = tmp_path / "cache" / chosen.relative_to("/c")
    make_work_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_a_shared_folder_that_others_prepared_is_refused(tmp_path: Path, kind: str) -> None:
    parent = tmp_path / f"channel_tools-{os.geteuid()}"
    if kind == "file":
        parent.write_text("")
    elif kind == "link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        parent.symlink_to(tmp_path / "theirs")
    else:
        parent.mkdir()
        parent.chmod(0o777)
    with pytest.raises(UsageError, match=f"{parent}: .*") as caught:
        make_work_folder(parent / "key")
    assert "TMPDIR" in (caught.value.hint or "")
    assert not (parent / "key").exists()
