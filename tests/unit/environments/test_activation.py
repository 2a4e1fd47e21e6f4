# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from channel_tools.environments import activated_environment, check_modulefile, write_modulefile
from channel_tools.system.errors import CommandError, UsageError
from tests.support.programs import program

RECIPES = Path(__file__).parents[3] / "recipes"
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
    (prefix / "etc/conda/activate.d").mkdir(parents=True)
    return prefix


def test_programs_of_the_environment_come_first(prefix: Path) -> None:
    variables = activated_environment(prefix, environ={"PATH": "/callers/bin"})
    assert variables["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
    assert variables["CONDA_PREFIX"] == str(prefix)


def test_activation_scripts_take_effect(prefix: Path) -> None:
    script = prefix / "etc/conda/activate.d/site.sh"
    script.write_text('export SITE="$CONDA_PREFIX/etc\nsecond line"\nunset CONDA_SHLVL\n')
    variables = activated_environment(prefix, environ={})
    assert variables["SITE"] == f"{prefix}/etc\nsecond line"
    assert "CONDA_SHLVL" not in variables


def variables_of_recipes() -> dict[str, set[str]]:
    """By recipe, the variables that say where a site's libraries are, as its search for them lists them."""
    found: dict[str, set[str]] = {}
    for path in sorted([*RECIPES.glob("*/src/*.[ch]"), *RECIPES.glob("*-external/src/*.sh")]):
        text = path.read_text()
        lists = re.findall(r"(?:VARIABLES|PATHS)\[\] = \{([^}]+)\}", text)
        names = {name for one in lists for name in re.findall(r'"(\w+)"', one)}
        names |= set(re.findall(r"\bCHANNEL_[A-Z_]+_(?:DIR|ROOT)\b|\bXILINX_XRT\b", text))
        found.setdefault(path.parents[1].name, set()).update(names - {"LD_LIBRARY_PATH"})
    return {recipe: names for recipe, names in found.items() if names}


def test_where_a_sites_libraries_are_reaches_the_activation_scripts_that_look_for_them(prefix: Path) -> None:
    asked = variables_of_recipes()
    assert asked.keys() == {"libfabric-external", "mpich", "rocm-external", "xrt-external"}
    names = set().union(*asked.values())
    assert {"CHANNEL_LIBFABRIC_DIR", "CRAY_MPICH_DIR", "PE_MPICH_GTL_DIR_nvidia90", "ROCM_PATH", "XILINX_XRT"} <= names
    (prefix / "etc/conda/activate.d/site.sh").write_text("export SEEN=$(env | cut -d= -f1 | tr '\\n' ' ')\n")
    seen = activated_environment(prefix, environ=dict.fromkeys(names, "/site"))["SEEN"].split()
    assert names - set(seen) == set()


def test_nothing_of_the_callers_environment_leaks(prefix: Path) -> None:
    callers = dict.fromkeys(
        ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "VIRTUAL_ENV", "BASH_ENV"), "/x"
    )
    variables = activated_environment(prefix, environ={**callers, "HOME": "/home/me", "CONDA_PREFIX": "/other"})
    assert not callers.keys() & variables.keys()
    assert variables["HOME"] == "/home/me"
    assert "/other" not in variables.values()


def test_no_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an environment"):
        activated_environment(tmp_path, environ={})


def test_a_failing_script_is_an_error(prefix: Path) -> None:
    (prefix / "etc/conda/activate.d/broken.sh").write_text("echo driver not found >&2\nexit 3\n")
    with pytest.raises(CommandError, match=r"(?s)exit status 3.*driver not found"):
        activated_environment(prefix, environ={})


@pytest.mark.parametrize("name", ["jürgen's env", 'a"b', "a$HOME", "a`touch ran`", "a\\b", "a:b", "a\nb", "a\udcff"])
def test_a_path_where_none_can_work_is_refused_and_not_given_to_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name / "conda-meta").mkdir(parents=True)
    with pytest.raises(UsageError, match="an environment cannot work at a path with"):
        activated_environment(tmp_path / name, environ={})
    assert not (tmp_path / "ran").exists()


def test_other_signs_in_a_path_are_taken_as_they_are(tmp_path: Path) -> None:
    prefix = tmp_path / "jürgen;&(a,b=50%#c)* [!?~ |<>"
    (prefix / "conda-meta").mkdir(parents=True)
    variables = activated_environment(prefix, environ={})
    assert variables["PATH"] == f"{prefix}/bin:/usr/bin:/bin"
    assert variables["CONDA_PREFIX"] == str(prefix)


@pytest.fixture
def prefix_of_modulefiles(tmp_path: Path) -> Path:
    prefix_of_modulefiles = tmp_path / "an environment"
    (prefix_of_modulefiles / "conda-meta").mkdir(parents=True)
    scripts = prefix_of_modulefiles / "etc" / "conda" / "activate.d"
    scripts.mkdir(parents=True)
    quoted = "'" + HARD + "'"
    (scripts / "site.sh").write_text(f"export SITE={quoted}\nexport PATH=/opt/mpi/bin:$PATH\n", encoding="utf-8")
    return prefix_of_modulefiles


@pytest.mark.parametrize(("language", "script"), [("lua", LUA), ("tclsh", TCL)])
def test_loading_sets_what_activation_sets(
    language: str, script: str, prefix_of_modulefiles: Path, tmp_path: Path
) -> None:
    interpreter = program(language)
    file = tmp_path / ("stack.lua" if language == "lua" else "stack")
    write_modulefile(
        file,
        prefix_of_modulefiles,
        about="the stack",
        environ={"HOME": "/home/me", "CONDA_PREFIX": str(prefix_of_modulefiles)},
    )
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
        ("prepend-path", "PATH", f"{prefix_of_modulefiles}/bin"),
        ("prepend-path", "PATH", "/opt/mpi/bin"),
        ("setenv", "CONDA_PREFIX", str(prefix_of_modulefiles)),
        ("setenv", "SITE", HARD),
    }


def test_a_missing_folder_is_named_before_anything_is_installed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        check_modulefile(tmp_path / "modules" / "udp.lua")
