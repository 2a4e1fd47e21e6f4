# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from channel_tools.build.environment import child_environment
from channel_tools.build.model import BuildJob, BuildOptions, BuildPlaces
from channel_tools.build.worker import check_paths, clear_work, start_child
from channel_tools.system.errors import ConfigError
from channel_tools.system.processes import end_process_group

JOB = BuildJob(file_name="toy-1.0-h_0.conda", subdir="noarch", recipe_folder=Path("recipe"))
OPTIONS = BuildOptions(platform="linux-64", max_jobs=1, cores=1, environ={})


@pytest.fixture(autouse=True)
def _recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe").mkdir()
    Path("recipe", "recipe.yaml").write_text("not a recipe")


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
    ours, theirs = tmp_path / "toy", tmp_path / "mine"
    for folder in (ours, theirs):
        folder.mkdir()
    (ours / "spec.json").touch()
    (theirs / "notes.txt").touch()
    clear_work(tmp_path)
    assert not ours.exists()
    assert (theirs / "notes.txt").is_file()
    clear_work(tmp_path / "not there")


_CLEAR = """
import sys
from pathlib import Path
from channel_tools.build.node import clear_builds
from channel_tools.build.environment import child_environment
from channel_tools.build.worker import clear_work
from channel_tools.system.errors import UsageError

try:
    if sys.argv[1] == "here":
        clear_work(Path(sys.argv[2]), needed=sys.argv[3:])
    else:
        clear_builds(Path(sys.argv[2]), keep=sys.argv[3:], needed=sys.argv[3:])
except UsageError as err:
    sys.exit(f"{err.message}; {err.hint}")
"""


@pytest.mark.parametrize("mode", [0o700, 0o755], ids=["closed", "readable"])
@pytest.mark.parametrize("where", ["here", "on a cluster"])
def test_another_users_folder_stays_unless_a_build_needs_it(tmp_path: Path, where: str, mode: int) -> None:
    work = tmp_path / "work"
    for name in ("ours", "other"):
        (work / name).mkdir(parents=True)
        (work / name / "spec.json").touch()
    if os.geteuid() == 0:
        os.chown(work / "other", 65534, 65534)
    (work / "other").chmod(mode if os.geteuid() == 0 else mode & 0o555)
    # a root that may do no more than others with what is not its own
    denied = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"] if os.geteuid() == 0 else []

    def clear(*needed: str) -> subprocess.CompletedProcess[str]:
        command = [*denied, sys.executable, "-c", _CLEAR, where, str(work), *needed]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    left = clear("ours")
    assert (left.returncode, left.stderr) == (0, "")
    assert not (work / "ours").exists()
    assert (work / "other").is_dir()
    refused = clear("ours", "other")
    assert refused.returncode == 1
    assert f"{work / 'other'}: left by another build, and cannot be removed: permission denied" in refused.stderr
    assert f"remove it as {(work / 'other').owner()}, or choose another folder with --output" in refused.stderr


def test_the_previous_log_is_kept(tmp_path: Path) -> None:
    places = BuildPlaces(work=tmp_path / "work", logs=tmp_path / "logs", cache=tmp_path / "cache")
    places.logs.mkdir()
    (places.logs / "toy-1.0-h_0.log").write_text("earlier")
    child = start_child(JOB, OPTIONS, places=places, channels=(), cores=1)
    end_process_group(child.process)
    assert child.log == places.logs / "toy-1.0-h_0.log"
    assert child.log.read_text() != "earlier"
    assert (places.logs / "toy-1.0-h_0.previous.log").read_text() == "earlier"


def test_a_worker_gets_the_recipe_inside_its_own_folder(tmp_path: Path) -> None:
    places = BuildPlaces(work=tmp_path / "work", logs=tmp_path / "logs", cache=tmp_path / "cache")
    child = start_child(JOB, OPTIONS, places=places, channels=(), cores=1)
    end_process_group(child.process)
    spec = json.loads((places.work / JOB.stem / "spec.json").read_bytes())
    assert spec["recipe_folder"] == str(places.work / JOB.stem / "recipe")
    assert Path(spec["recipe_folder"], "recipe.yaml").read_text() == "not a recipe"


def test_the_folder_of_a_long_name_is_short_and_its_own() -> None:
    jobs = [replace(JOB, file_name=f"toy-{'1' * 100}-h_{number}.conda") for number in range(2)]
    assert [len(job.folder_name) for job in jobs] == [64, 64]
    assert jobs[0].folder_name != jobs[1].folder_name
    assert JOB.folder_name == JOB.stem


def test_a_name_that_would_make_the_engine_panic_is_refused(tmp_path: Path) -> None:
    places = BuildPlaces(work=Path("/" + "w" * 79), logs=tmp_path / "logs", cache=tmp_path / "cache")
    longest = replace(JOB, file_name=f"{'n' * 78}-1.0-h_0.conda")
    check_paths([JOB, longest], places)
    with pytest.raises(ConfigError, match="would be 1 bytes longer"):
        check_paths([JOB, replace(longest, file_name="n" + longest.file_name)], places)


def test_a_folder_of_a_running_build_is_not_taken_over(tmp_path: Path) -> None:
    places = BuildPlaces(work=tmp_path / "work", logs=tmp_path / "logs", cache=tmp_path / "cache")
    (places.work / JOB.stem / "tmp").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        start_child(JOB, OPTIONS, places=places, channels=(), cores=1)


def test_the_processes_around_a_build_import_nothing_that_plans() -> None:
    """Each build begins by it: pydantic and rattler, which read trees and solve, are half of its processor time."""
    script = "import sys, channel_tools.build.node, channel_tools.build.worker; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert {"pydantic", "rattler", "rattler_build"}.isdisjoint(result.stdout.split())
