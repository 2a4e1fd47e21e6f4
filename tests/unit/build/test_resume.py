# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
from pathlib import Path

import pytest

from channel_tools.build.model import BuildJob, BuildTools
from channel_tools.build.resume import KEPT, can_resume, mark_opened, resumable_builds, set_aside, take_over
from channel_tools.build.worker import clear_work
from channel_tools.system.errors import BuildError


@pytest.fixture
def job(tmp_path: Path) -> BuildJob:
    recipe = tmp_path / "recipes" / "toy"
    recipe.mkdir(parents=True)
    (recipe / "recipe.yaml").write_text("package: {name: toy}\n")
    return BuildJob(file_name="toy-1.0-h1234567_0.conda", subdir="noarch", recipe_folder=recipe)


@pytest.fixture
def work(tmp_path: Path, job: BuildJob) -> Path:
    """A failed build as the engine leaves it."""
    folder = tmp_path / "work" / job.folder_name
    ran = folder / "out" / "bld" / "rattler-build_toy" / "work"
    ran.mkdir(parents=True)
    (folder / "recipe").mkdir()
    (folder / "tmp").mkdir()
    (folder / "spec.json").write_text("{}")
    (folder / "recipe" / "recipe.yaml").write_text("package: {name: toy}\n")
    (ran / "build_env.sh").touch()
    (ran / "source.c").write_text("int one;")
    (folder / "out" / "rattler-build-log.txt").write_text(json.dumps({"work_dir": str(ran)}) + "\n")
    return tmp_path / "work"


def ran_in(work: Path, job: BuildJob) -> Path:
    return work / job.folder_name / "out" / "bld" / "rattler-build_toy" / "work"


def resumable(work: Path, job: BuildJob) -> list[BuildJob]:
    notes: list[str] = []
    found = resumable_builds(work, [job], BuildTools(from_failed=True), note=notes.append)
    anew = "no failed build of these packages is kept: all of them start from the beginning"
    assert notes == [f"{job.stem}: continues where it failed" if found else anew]
    return found


def test_without_the_option_every_build_starts_from_the_beginning(work: Path, job: BuildJob) -> None:
    notes: list[str] = []
    assert resumable_builds(work, [job], BuildTools(), note=notes.append) == []
    assert notes == []
    folder = work / job.folder_name
    assert [can_resume(folder, job, BuildTools(from_failed=asked)) for asked in (False, True)] == [False, True]


def test_of_a_failed_build_the_work_folder_stays(work: Path, job: BuildJob) -> None:
    assert resumable(work, job) == [job]
    clear_work(work, keep=[job.folder_name])
    kept = set_aside(work / job.folder_name, job)
    assert (kept / "source.c").read_text() == "int one;"
    assert {path.name for path in (work / job.folder_name).iterdir()} == {KEPT, "recipe", "spec.json"}
    assert resumable(work, job) == [job]  # should this build end before its script begins
    assert set_aside(work / job.folder_name, job) == kept


def test_what_was_compiled_outlives_a_build_that_could_not_continue_it(work: Path, job: BuildJob) -> None:
    kept = set_aside(work / job.folder_name, job)
    ran = ran_in(work, job)
    ran.mkdir(parents=True)
    (ran / "build_env.sh").touch()
    (ran.parents[2] / "rattler-build-log.txt").write_text(json.dumps({"work_dir": str(ran)}) + "\n")
    assert set_aside(work / job.folder_name, job) == kept
    assert (kept / "source.c").read_text() == "int one;"


def test_the_build_of_another_recipe_is_begun_anew(work: Path, job: BuildJob) -> None:
    (job.recipe_folder / "recipe.yaml").write_text("package: {name: toy}\nbuild: {number: 1}\n")
    assert resumable(work, job) == []


def test_a_build_that_failed_before_its_script_is_begun_anew(work: Path, job: BuildJob) -> None:
    (ran_in(work, job) / "build_env.sh").unlink()
    assert resumable(work, job) == []


def test_what_was_only_looked_at_is_gone_on_with(work: Path, job: BuildJob) -> None:
    mark_opened(work / job.folder_name)
    assert resumable(work, job) == [job]


@pytest.mark.parametrize("name", ["source.c", "main.o"], ids=["a source", "what was built"])
def test_what_was_changed_under_debug_is_refused(work: Path, job: BuildJob, name: str) -> None:
    mark_opened(work / job.folder_name)
    opened_ns = (work / job.folder_name / "opened").stat().st_ctime_ns
    changed = ran_in(work, job) / name
    while not changed.exists() or changed.stat().st_ctime_ns <= opened_ns:  # the clock of files ticks a few ms apart
        changed.write_text("by hand")
    mark_opened(work / job.folder_name)  # and looked at once more
    with pytest.raises(BuildError, match=r"toy-1\.0-h1234567_0: .* was changed after channel_tools debug") as caught:
        resumable(work, job)
    assert "without --from-failed" in str(caught.value.hint)


def trees(folder: Path) -> tuple[Path, Path]:
    """What the engine unpacks, twice; the second has what a build made, too."""
    made = []
    for name in ("fresh", "kept"):
        root = folder / name
        (root / "lib").mkdir(parents=True)
        (root / "lib" / "a.c").write_text("int a;")
        (root / "configure").write_text("#!/bin/sh")
        (root / "configure").chmod(0o755)
        (root / "link").symlink_to("lib/a.c")
        made.append(root)
    (made[1] / "lib" / "a.o").write_text("object")
    return made[0], made[1]


def test_a_kept_folder_with_the_recipes_sources_takes_the_place_of_the_new_one(tmp_path: Path) -> None:
    fresh, kept = trees(tmp_path)
    take_over(kept, fresh)
    assert (fresh / "lib" / "a.o").read_text() == "object"
    assert not kept.exists()


def test_the_engines_record_of_the_sources_may_have_its_keys_in_another_order(tmp_path: Path) -> None:
    fresh, kept = trees(tmp_path)
    (fresh / ".source_info.json").write_text('{"extracted": {"0": "ef56", "1": "a8f5"}}')
    (kept / ".source_info.json").write_text('{"extracted": {"1": "a8f5", "0": "ef56"}}')
    take_over(kept, fresh)
    assert (fresh / "lib" / "a.o").exists()


@pytest.mark.parametrize("text", ['{"extracted": {"0": "ef57"}}', "not JSON"])
def test_another_record_of_the_sources_is_named(tmp_path: Path, text: str) -> None:
    fresh, kept = trees(tmp_path)
    (fresh / ".source_info.json").write_text('{"extracted": {"0": "ef56"}}')
    (kept / ".source_info.json").write_text(text)
    with pytest.raises(BuildError, match=r"no longer those of the recipe: \.source_info\.json$"):
        take_over(kept, fresh)


def test_sources_that_are_no_longer_the_recipes_are_named(tmp_path: Path) -> None:
    fresh, kept = trees(tmp_path)
    (kept / "lib" / "a.c").write_text("int b;")
    (kept / "configure").chmod(0o644)
    (kept / "link").unlink()
    (kept / "link").write_text("int a;")
    (fresh / "gone").touch()
    with pytest.raises(BuildError, match=r"no longer those of the recipe: configure, gone, lib/a\.c, link$"):
        take_over(kept, fresh)
    assert (kept / "lib" / "a.o").exists()
    for number in range(3):
        (fresh / f"new{number}").touch()
    with pytest.raises(BuildError, match=r"lib/a\.c, link, new0 and 2 more$"):
        take_over(kept, fresh)
