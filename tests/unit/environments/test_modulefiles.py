# SPDX-License-Identifier: BSD-3-Clause
"""Module files, as the languages read them that Lmod and Environment Modules are written in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import check_modulefile, write_modulefile
from channel_tools.system.errors import UsageError
from tests.support.programs import program

HARD = 'a "b" $HOME [exit 1] \\n {c} é\nsecond line'
LUA = """
local function show(name) return function(...) print(name .. "\\0" .. table.concat({...}, "\\0") .. "\\0") end end
whatis, prepend_path, setenv = show("whatis"), show("prepend-path"), show("setenv")
dofile(arg[1])
"""
TCL = """
encoding system utf-8
fconfigure stdout -encoding utf-8
foreach {name shown} {module-whatis whatis prepend-path prepend-path setenv setenv} {
  proc $name {args} "puts \\[join \\[concat $shown \\$args\\] \\\\0\\]\\\\0"
}
source -encoding utf-8 [lindex $argv 0]
"""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    prefix = tmp_path / "an environment"
    (prefix / "conda-meta").mkdir(parents=True)
    scripts = prefix / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    quoted = "'" + HARD + "'"
    (scripts / "site.sh").write_text(f"export SITE={quoted}\nexport PATH=/opt/mpi/bin:$PATH\n", encoding="utf-8")
    return prefix


@pytest.mark.parametrize(("language", "script"), [("lua", LUA), ("tclsh", TCL)])
def test_loading_sets_what_activation_sets(language: str, script: str, prefix: Path, tmp_path: Path) -> None:
    interpreter = program(language)
    file = tmp_path / ("stack.lua" if language == "lua" else "stack")
    write_modulefile(file, prefix, about="the stack", environ={"HOME": "/home/me", "CONDA_PREFIX": str(prefix)})
    (tmp_path / "read").write_text(script, encoding="utf-8")
    library = Path(interpreter).parents[2] / "usr" / "share" / "tcltk" / "tcl8.6"
    result = subprocess.run(
        [interpreter, tmp_path / "read", file],
        env={"TCL_LIBRARY": str(library)}, capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    calls = {tuple(call.split("\0")) for call in result.stdout.removesuffix("\0\n").split("\0\n")}
    assert calls == {
        ("whatis", "the stack"),
        ("prepend-path", "PATH", f"{prefix}/bin"),
        ("prepend-path", "PATH", "/opt/mpi/bin"),
        ("setenv", "CONDA_PREFIX", str(prefix)),
        ("setenv", "SITE", HARD),
    }


def test_a_missing_folder_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        check_modulefile(tmp_path / "modules" / "udp.lua")
