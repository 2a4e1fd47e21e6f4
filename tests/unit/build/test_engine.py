# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import os
import py_compile
import sys
from pathlib import Path

import pytest

from channel_tools.build.engine import dropped_notes, recompile_modules
from channel_tools.build.model import WorkerResult, encode

PYTHON = f"python3.{sys.version_info.minor}"


def packed(work: Path, *, names_the_build: bool) -> Path:
    """A module in the folder that the engine packs, and its byte code; the file of byte code."""
    program = work / "out" / "bld" / "rattler-build_toy" / "host_env_placehold" / "bin" / PYTHON
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    module = work / "tmp" / "pkg" / "lib" / PYTHON / "toy.py"
    module.parent.mkdir(parents=True)
    module.write_text("answer = 42\n")
    shown = str(module) if names_the_build else "lib/toy.py"
    return Path(str(py_compile.compile(str(module), dfile=shown, doraise=True)))


def test_byte_code_that_names_the_builds_folder_is_compiled_again(tmp_path: Path) -> None:
    code = packed(tmp_path, names_the_build=True)
    assert os.fsencode(tmp_path) in code.read_bytes()
    (note,) = recompile_modules(tmp_path / "out")
    assert note.endswith("(files: 1)")
    assert os.fsencode(tmp_path) not in code.read_bytes()


def test_other_byte_code_is_left_as_it_is(tmp_path: Path) -> None:
    code = packed(tmp_path, names_the_build=False)
    before = code.read_bytes()
    assert recompile_modules(tmp_path / "out") == ()
    assert code.read_bytes() == before


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A host environment with a file of another package, as the engine makes it."""
    prefix = tmp_path / "bld" / "rattler-build_toy" / "host_env_placehold"
    (prefix / "conda-meta").mkdir(parents=True)
    (prefix / "conda-meta/other-1.0-0.json").write_text(json.dumps({"files": ["share/other"]}))
    write(prefix, "share/other", 0o600)
    return prefix


def write(prefix: Path, name: str, mode: int) -> None:
    path = prefix / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    path.chmod(mode)


def test_ordinary_files_are_not_worth_a_note(prefix: Path, tmp_path: Path) -> None:
    for name, mode in {"bin/toy": 0o755, "share/toy": 0o644, "lib/read-only": 0o444, "lib/program": 0o555}.items():
        write(prefix, name, mode)
    (prefix / "share/link").symlink_to("toy")
    assert dropped_notes(tmp_path) == ()


def test_empty_folders_are_named(prefix: Path, tmp_path: Path) -> None:
    (prefix / "var/lib/toy").mkdir(parents=True)
    (prefix / "etc/toy.d").mkdir(parents=True)
    (note,) = dropped_notes(tmp_path)
    assert note.startswith("its package has no empty folders, so these are left out: etc/toy.d, var/lib/toy;")


def test_names_that_are_not_utf8_are_shown_as_escapes(prefix: Path, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(prefix) + b"/etc\xff")  # noqa: PTH102 - bytes
    write(prefix, "bin/toy\udcff", 0o4755)
    folders, modes = dropped_notes(tmp_path)
    assert r"left out: etc\xff;" in folders
    assert modes.endswith(r"bin/toy\xff (4755)")
    assert encode(WorkerResult(notes=(folders, modes)))


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o1644, 0o600, 0o700, 0o640, 0o4555])
def test_modes_that_packages_do_not_have_are_named(prefix: Path, tmp_path: Path, mode: int) -> None:
    write(prefix, "bin/toy", mode)
    (note,) = dropped_notes(tmp_path)
    assert note.endswith(f"so these are changed: bin/toy ({mode:04o})")


@pytest.mark.parametrize(("umask", "noted"), [(0o022, 1), (0o002, 0)])
def test_the_groups_permission_to_write_counts_if_it_was_given_on_purpose(
    prefix: Path, tmp_path: Path, umask: int, noted: int
) -> None:
    write(prefix, "share/toy", 0o664)
    before = os.umask(umask)
    try:
        assert len(dropped_notes(tmp_path)) == noted
    finally:
        os.umask(before)


def test_many_are_counted(prefix: Path, tmp_path: Path) -> None:
    for number in range(7):
        write(prefix, f"share/{number}", 0o600)
    (note,) = dropped_notes(tmp_path)
    assert note.endswith("share/4 (0600) and 2 more")
