# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build import failures
from channel_tools.build.failures import failure_of, first_error, kind_of, log_tail, not_the_expected, raise_failures
from channel_tools.build.model import BuildJob, BuildResult, FailureKind, WorkerResult
from channel_tools.system.errors import (
    BuildError,
    ChannelToolsError,
    ConfigError,
    DiskFullError,
    IntegrityError,
    NetworkError,
    SolveError,
)

JOB = BuildJob(file_name="toy-1.0-h_0.conda", subdir="noarch", recipe_folder=Path("toy"))


def write_log(folder: Path, *lines: str) -> Path:
    log = folder / "toy.log"
    log.write_text("".join(line + "\n" for line in lines))
    return log


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("script", BuildError, "the build script failed"),
        ("test", BuildError, "the recipe's test failed"),
        ("solve", SolveError, "cannot be solved"),
        ("recipe", ConfigError, "the engine rejects the rendered recipe"),
        ("source", IntegrityError, "does not have the sha256 that the recipe states (the words)"),
        ("network", NetworkError, "cannot be downloaded (the words)"),
        ("disk", DiskFullError, "no space is left"),
        ("killed", BuildError, "it was killed (the words)"),
        ("other", BuildError, "the build engine failed (the words)"),
    ],
)
def test_each_kind_of_failure_has_its_error(
    tmp_path: Path, kind: FailureKind, error: type[ChannelToolsError], words: str
) -> None:
    log = write_log(tmp_path, "compiling", "boom")
    made = failure_of(JOB, WorkerResult(failure=kind, message="the words"), log, seconds=1.25)
    assert type(made) is error
    assert words in made.message
    assert "toy-1.0-h_0: " in made.message
    assert "    boom\nlog: " + str(log) in made.message
    assert made.hint


@pytest.mark.parametrize("words", ["No space left on device", "Disk quota exceeded"])
def test_a_full_disk_is_told_from_the_scripts_own_words(words: str, tmp_path: Path) -> None:
    log = write_log(tmp_path, f"cp: error writing 'x': {words}", "error: Script failed with status 1")
    made = failure_of(JOB, WorkerResult(failure="script", message="Script failed"), log, seconds=1)
    assert isinstance(made, DiskFullError)


@pytest.mark.parametrize(("room_bytes", "error"), [(0, BuildError), (1 << 62, DiskFullError)], ids=["room", "none"])
def test_an_environment_that_was_solved_was_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int, error: type[ChannelToolsError]
) -> None:
    """The engine says of both that they cannot be resolved, and nothing of a full disk."""
    monkeypatch.setattr(failures, "_ROOM_BYTES", room_bytes)
    lines = ["  Specs:", "   - zlib", "│ Package ┆ Version ┆ Build │", "error: Failed to resolve dependencies"]
    result = WorkerResult(failure="solve", message="Failed to resolve dependencies")
    made = failure_of(JOB, result, write_log(tmp_path, "first", *lines), seconds=1, written=[tmp_path])
    assert type(made) is error
    unsolved = write_log(tmp_path, "first", *lines[:2], *lines, *lines[:2], "error: Failed to resolve dependencies")
    assert isinstance(failure_of(JOB, result, unsolved, seconds=1), SolveError)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Script failed to execute", "script"),
        ("Test failed", "test"),
        ("Failed to resolve dependencies", "solve"),
        ("sha256 checksum validation failed for x\n  expected: a\n  actual: b", "source"),
        ("Failed to download from URL: Request failed after 3 retries", "network"),
        ("writing: No space left on device (os error 28)", "disk"),
        ("writing: Disk quota exceeded (os error 122)", "disk"),
        ("Package toy contains Binary file bin/x which contains host prefix placeholder", "other"),
    ],
)
def test_the_engines_words_tell_the_kind(message: str, kind: str) -> None:
    assert kind_of(message) == kind


def test_the_tail_is_the_last_lines_before_the_engines_advice(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    log = write_log(tmp_path, *lines, "", "error: Script execution failed.", "To run the script manually")
    assert log_tail(log).splitlines() == [f"    line {number}" for number in range(80, 100)]


@pytest.mark.parametrize("mark", ["", " │ "], ids=["bare", "marked"])
@pytest.mark.parametrize(
    "cause",
    [
        "src/toy.c:3:10: fatal error: rdma/rdma_cma.h: No such file or directory",
        "toy.cpp:12:5: error: 'x' was not declared in this scope",
        "toy.c:(.text+0x5): undefined reference to `gone'",
        "/opt/bin/ld: cannot find -lgone: No such file or directory",
        "CMake Error at CMakeLists.txt:3 (find_package):",
        "configure: error: no acceptable C compiler found in $PATH",
        'meson.build:4:0: ERROR: Dependency "gone" not found',
        "ERROR: Could not find a version that satisfies the requirement gone (from versions: none)",
        "error: subprocess-exited-with-error",
        "error[E0308]: mismatched types",
        "ModuleNotFoundError: No module named 'gone'",
        "build.sh: line 4: gone: command not found",
    ],
)
def test_the_first_error_of_a_script_leads_and_its_callers_do_not_hide_it(
    tmp_path: Path, cause: str, mark: str
) -> None:
    noise = [f"{mark}[{number}/900] compiling error.c -Werror" for number in range(60)]
    last = f"{mark}make: *** [Makefile:9: all] Error 2"
    old = ["old.c:1:1: error: of an earlier attempt", "│ Package ┆ Version ┆ Build │"]
    log = write_log(tmp_path, *old, *noise, mark + cause, *noise, "other.c:1:1: error: a later one", *noise, last)
    made = failure_of(JOB, WorkerResult(failure="script"), log, seconds=1).message.splitlines()
    assert made[3] == f"    {mark}{cause}"
    assert made[-3:] == [f"    {noise[-1]}", f"    {last}", f"log: {log}"]
    assert "    ..." in made
    assert len(made) == 17
    assert not any("earlier attempt" in line or "a later one" in line for line in made)


def test_a_log_without_a_known_error_shows_its_last_lines(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    made = failure_of(JOB, WorkerResult(failure="script"), write_log(tmp_path, *lines), seconds=1).message
    assert made.splitlines()[1:-1] == [f"    line {number}" for number in range(80, 100)]


def test_a_huge_log_is_not_read_as_a_whole(tmp_path: Path) -> None:
    log = tmp_path / "toy.log"
    with log.open("wb") as stream:
        stream.truncate(1 << 40)  # a sparse terabyte
        stream.seek(0, 2)
        stream.write(b"\nlast\n")
    assert log_tail(log).splitlines()[-1] == "    last"


def test_another_package_than_planned_names_both() -> None:
    made = not_the_expected(JOB, [Path("out/linux-64/toy-1.0-h_1.conda")], Path("toy.log"))
    assert "made linux-64/toy-1.0-h_1.conda; expected noarch/toy-1.0-h_0.conda" in made.message


def test_all_failures_are_told_in_one_error_with_what_they_held_back() -> None:
    other = BuildJob(file_name="other-1.0-h_0.conda", subdir="noarch", recipe_folder=Path("other"))
    results = [
        BuildResult(job=JOB, status="failed", error=SolveError("first", hint="do this")),
        BuildResult(job=JOB, status="failed", error=BuildError("second")),
        BuildResult(job=other, status="not_started"),
    ]
    with pytest.raises(SolveError) as caught:
        raise_failures(results)
    assert caught.value.message == "first\nsecond\nnot built because of that: other-1.0-h_0"
    assert caught.value.hint == "do this"


def test_success_raises_nothing() -> None:
    raise_failures([BuildResult(job=JOB, status="built")])


def test_the_engines_own_error_is_no_cause() -> None:
    assert first_error("+ exit 3\nboom\nerror: Script failed with status 3\n") == ""
