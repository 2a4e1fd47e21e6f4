# SPDX-License-Identifier: BSD-3-Clause
"""Temporary folders: removed after use, and by the next run when their process was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from channel_tools.system.files import atomic_path
from channel_tools.system.work_folder import PREFIX, temporary_folder

_WAITING = """
import sys
from pathlib import Path
from channel_tools.system.work_folder import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_removed_after_the_block_whatever_happens_in_it(tmp_path: Path) -> None:
    def fail_in_it() -> None:
        with temporary_folder(tmp_path) as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
            (folder / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_in_it()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_no_earlier(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WAITING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temporary_folder(tmp_path), temporary_folder(tmp_path):
            assert (left / "file").exists()
        process.kill()
        process.wait()
        assert (left / "file").exists()
        with temporary_folder(tmp_path) as folder:
            assert list(tmp_path.iterdir()) == [folder]


def test_a_large_file_is_written_in_place_of_what_a_killed_process_left_beside_it(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    with atomic_path(tmp_path / "small") as small:
        small.touch()
    assert left.is_dir()
    with atomic_path(tmp_path / "large", clear_abandoned=True) as large:
        large.touch()
        assert not left.exists()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "large", tmp_path / "small"]


def test_only_folders_of_that_name_are_removed(tmp_path: Path) -> None:
    (tmp_path / "channel_tools-0").mkdir()
    (tmp_path / ".channel_tools-tmp-file").touch()
    (tmp_path / ".channel_tools-tmp-link").symlink_to("channel_tools-0")
    before = set(tmp_path.iterdir())
    with temporary_folder(tmp_path):
        pass
    assert set(tmp_path.iterdir()) == before


def test_a_folder_that_another_process_removes_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, made = tempfile.mkdtemp, []

    def make_and_lose_the_first(*, prefix: str, dir: Path) -> str:  # noqa: A002 - mkdtemp's own name
        made.append(Path(make(prefix=prefix, dir=dir)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose_the_first)
    with temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
        assert [folder] == made[1:]
