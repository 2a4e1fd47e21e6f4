# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.children import child_environment, clear_work, start_child
from channel_tools.build.model import BuildJob, BuildPlaces
from channel_tools.commands import end_process_group

JOB = BuildJob(file_name="toy-1.0-h_0.conda", subdir="noarch", recipe_folder=Path("no-such-recipe"))


def test_a_worker_sees_nothing_of_the_callers_environment_but_what_channels_need(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/me",
        "CC": "my-cc",
        "LD_LIBRARY_PATH": "/opt",
        "PYTHONPATH": "/x",
        "https_proxy": "http://p",
    }
    made = child_environment(environ, cores=3, temporary=tmp_path, cache=tmp_path / "cache")
    assert made == {
        "HOME": "/home/me",
        "https_proxy": "http://p",
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": str(tmp_path),
        "CPU_COUNT": "3",
        "RATTLER_CACHE_DIR": str(tmp_path / "cache"),
        "NO_COLOR": "1",
    }


def test_only_build_folders_are_cleared(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "toy", tmp_path / "mine"
    for folder in (ours, foreign):
        folder.mkdir()
    (ours / "spec.json").touch()
    (foreign / "notes.txt").touch()
    clear_work(tmp_path)
    assert not ours.exists()
    assert (foreign / "notes.txt").is_file()
    clear_work(tmp_path / "not there")


def test_the_previous_log_is_kept(tmp_path: Path) -> None:
    places = BuildPlaces(work=tmp_path / "work", logs=tmp_path / "logs", cache=tmp_path / "cache")
    places.logs.mkdir()
    (places.logs / "toy-1.0-h_0.log").write_text("earlier")
    child = start_child(JOB, places=places, channels=(), platform="linux-64", cores=1, environ={})
    end_process_group(child.process)
    assert child.log == places.logs / "toy-1.0-h_0.log"
    assert child.log.read_text() != "earlier"
    assert (places.logs / "toy-1.0-h_0.previous.log").read_text() == "earlier"


def test_a_folder_of_a_running_build_is_not_taken_over(tmp_path: Path) -> None:
    places = BuildPlaces(work=tmp_path / "work", logs=tmp_path / "logs", cache=tmp_path / "cache")
    (places.work / JOB.stem / "tmp").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        start_child(JOB, places=places, channels=(), platform="linux-64", cores=1, environ={})
