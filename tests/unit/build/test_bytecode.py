# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path

from channel_tools.build.bytecode import recompile_modules

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
