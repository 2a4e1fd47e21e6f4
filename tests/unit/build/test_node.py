# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.build.model import FINISHED
from channel_tools.build.node import clear_builds, lock_of, remove_build
from channel_tools.system.locks import exclusive_lock


def build_in(work: Path, name: str, *, finished: bool = False) -> Path:
    folder = work / name
    folder.mkdir(parents=True)
    if finished:
        (folder / FINISHED).write_text("{}")
    return folder


def test_only_builds_that_are_still_wanted_stay(tmp_path: Path) -> None:
    for name in ("finished", "kept", "unfinished"):
        build_in(tmp_path, name, finished=name in {"finished", "kept"})
    clear_builds(tmp_path, keep=["kept", "unfinished"])
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"kept"}


def test_a_folder_in_which_a_job_builds_stays(tmp_path: Path) -> None:
    folder = build_in(tmp_path, "busy")
    with exclusive_lock(lock_of(folder), resource="a job"):
        clear_builds(tmp_path, keep=())
    assert folder.is_dir()


def test_a_build_is_removed_with_its_lock(tmp_path: Path) -> None:
    folder = build_in(tmp_path, "done")
    with exclusive_lock(lock_of(folder), resource="a job"):
        pass
    remove_build(folder)
    assert list(tmp_path.iterdir()) == []
