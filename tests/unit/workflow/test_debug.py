# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from channel_tools.build.node import lock_of
from channel_tools.system.errors import BuildError, ChannelError, UsageError
from channel_tools.system.locks import exclusive_lock
from channel_tools.system.settings import Settings, Tree
from channel_tools.workflow.debug import debug_build, find_failed, work_folder_of


def failed_build(work: Path, folder_name: str, name: str) -> Path:
    """The folder of a failed build as the engine leaves it; returns where the script ran."""
    folder = work / folder_name
    ran = folder / "out" / "bld" / "work"
    (folder / "recipe").mkdir(parents=True)
    (folder / "tmp").mkdir()
    ran.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    (folder / "recipe" / "recipe.yaml").write_text(f"package: {{name: {name}}}\n")
    (ran / "build_env.sh").write_text(f"export PKG_NAME={name}\nexport PS1='> '\n")
    (folder / "out" / "rattler-build-log.txt").write_text(
        "".join(json.dumps({"work_dir": str(place), "other": 1}) + "\n" for place in (work, ran))
    )
    return ran


def debug(folder: Path, package: str, *command: str) -> tuple[int, list[Path]]:
    settings = Settings(tree=Tree(root=folder), output=folder / "output", cache=folder / "cache")
    found: list[Path] = []
    status = debug_build(settings, package, command, cores=2, environ=os.environ, on_found=found.append)
    return status, found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose builds run in ``work``, however long the path is."""
    monkeypatch.setattr(Settings, "work", tmp_path / "work")
    return tmp_path


def test_a_command_runs_where_the_build_failed_and_says_how_it_went(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = failed_build(folder / "work" / "nodes", "lib-1.0-h1234567_0", "lib")
    monkeypatch.setenv("SITE", "leaked")
    script = 'echo "$PKG_NAME $CPU_COUNT $1 $SITE"; pwd; exit 5'
    assert debug(folder, "lib", "sh", "-c", script, "sh", "a b") == (5, [ran])
    assert capfd.readouterr().out == f"lib 2 a b \n{ran}\n"


def test_no_build_begins_while_a_shell_is_open(folder: Path) -> None:
    failed_build(folder / "work", "lib-1.0-h1234567_0", "lib")
    with (
        exclusive_lock(folder / "work" / ".lock", resource="the build folder"),
        pytest.raises(ChannelError, match="in use"),
    ):
        debug(folder, "lib", "true")


def test_a_build_that_a_job_still_runs_has_not_failed(folder: Path) -> None:
    failed_build(folder / "work" / "nodes", "lib-1.0-h1234567_0", "lib")
    with (
        exclusive_lock(lock_of(folder / "work" / "nodes" / "lib-1.0-h1234567_0"), resource="the build"),
        pytest.raises(ChannelError, match=f"in use by process {os.getpid()}"),
    ):
        debug(folder, "lib", "true")
    assert debug(folder, "lib", "true")[0] == 0


def test_a_folder_of_another_user_is_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed_build(tmp_path, "lib-1.0-h1234567_0", "lib")
    failed_build(tmp_path, "other-1.0-h1234567_0", "other")
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).name != "lib-1.0-h1234567_0")
    with pytest.raises(UsageError, match=r"lib: no failed build of this name is kept"):
        find_failed([tmp_path], "lib")
    assert find_failed([tmp_path], "other").name == "other-1.0-h1234567_0"


def test_a_package_that_has_not_failed_is_an_error_with_those_that_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lib: no failed build of this name is kept") as nothing:
        find_failed([tmp_path / "work"], "lib")
    assert nothing.value.hint == "run channel_tools build; it keeps the folder of a build that fails"
    failed_build(tmp_path, "libtoy-1.0-h1234567_0", "libtoy")
    with pytest.raises(UsageError) as other:
        find_failed([tmp_path], "libtyo")
    assert "libtoy" in str(other.value.hint)


def test_one_of_several_variants_is_named_by_its_folder(tmp_path: Path) -> None:
    for variant in ("a_h1234567_0", "b_h1234567_0"):
        failed_build(tmp_path, f"lib-1.0-{variant}", "lib")
    with pytest.raises(UsageError) as caught:
        find_failed([tmp_path], "lib")
    assert caught.value.hint == "name one of them: lib-1.0-a_h1234567_0, lib-1.0-b_h1234567_0"
    assert find_failed([tmp_path], "lib-1.0-b_h1234567_0").name == "lib-1.0-b_h1234567_0"


@pytest.mark.parametrize("note", [None, "", "{", '{"work_dir": "/nowhere"}'], ids=["none", "empty", "cut", "gone"])
def test_a_build_that_failed_before_its_script_has_only_a_log(tmp_path: Path, note: str | None) -> None:
    failed_build(tmp_path, "lib", "lib")
    log = tmp_path / "lib" / "out" / "rattler-build-log.txt"
    log.unlink() if note is None else log.write_text(note)
    with pytest.raises(BuildError, match=r"before its script started|not a log of the build engine"):
        work_folder_of(tmp_path / "lib")


def ended_build(work: Path, package: str) -> Path:
    """The folder of a build whose script ended well: the engine has removed where it ran; ``package`` is in ``out``."""
    ran = failed_build(work, "lib-1.0-h1234567_0", "lib")
    shutil.rmtree(ran.parent)
    made = work / "lib-1.0-h1234567_0" / "out" / package
    made.parent.mkdir()
    made.touch()
    return made


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("noarch/lib-1.0-h1234567_0.conda", "the package was not added to the channel"),
        ("broken/lib-1.0-h1234567_0.conda", "the recipe's test of the package failed"),
    ],
    ids=["refused", "test failed"],
)
def test_a_build_whose_script_ended_well_has_its_package_to_look_at(tmp_path: Path, package: str, message: str) -> None:
    made = ended_build(tmp_path, package)
    with pytest.raises(BuildError, match=f"the build script succeeded, but {message}: {made}") as caught:
        work_folder_of(tmp_path / "lib-1.0-h1234567_0")
    assert f"channel_tools audit {made}" in str(caught.value.hint)
