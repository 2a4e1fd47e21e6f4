# SPDX-License-Identifier: BSD-3-Clause
"""Module files that activate an environment by ``module load``: for Lmod in Lua, for Environment Modules in Tcl.

They hold what the activation scripts set when the file is written, so that loading runs no scripts and unloading undoes
it. Write the file again where a script would find something else by then, such as another MPI of the site.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.environments.activation import SYSTEM_PATH, activated_environment, user_variables
from channel_tools.system.errors import UsageError
from channel_tools.system.files import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LUA_SUFFIX = ".lua"
# of conda's own stack of environments, and of a shell's prompt
_LEFT_OUT = re.compile(r"CONDA_(?:SHLVL|PROMPT_MODIFIER|DEFAULT_ENV|ENV_SHLVL.*)|PS1")
_LUA_SPECIAL = re.compile(r'[\\"\x00-\x1f\x7f]')
_TCL_SPECIAL = re.compile(r'[\\"$\[\]\x00-\x1f\x7f]')


def check_modulefile(path: Path) -> None:
    """Raise UsageError for a file that cannot be written since its folder is missing."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="make it, or name another file")


def write_modulefile(path: Path, prefix: Path, *, about: str, environ: Mapping[str, str]) -> None:
    """Write a module file for the environment at ``prefix``: for Lmod if its name ends in .lua, else in Tcl.

    ``about`` is the line of ``module whatis``. ``environ`` is as for activated_environment, whose errors are raised.
    """
    variables = activated_environment(prefix, environ=environ)
    folders = [folder for folder in variables.pop("PATH").split(":") if folder not in SYSTEM_PATH]
    before = user_variables(environ)
    own = {
        name: value
        for name, value in sorted(variables.items())
        if before.get(name) != value and _LEFT_OUT.fullmatch(name) is None
    }
    is_lua = path.suffix == LUA_SUFFIX
    calls: list[tuple[str, ...]] = [("whatis" if is_lua else "module-whatis", about)]
    calls += [("prepend_path" if is_lua else "prepend-path", "PATH", folder) for folder in reversed(folders)]
    calls += [("setenv", name, value) for name, value in own.items()]
    if is_lua:
        lines = ["-- -*- lua -*-", *(f"{name}({', '.join(map(_lua_text, words))})" for name, *words in calls)]
    else:
        lines = ["#%Module1.0", *(" ".join([name, *map(_tcl_text, words)]) for name, *words in calls)]
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def _lua_text(text: str) -> str:
    return '"' + _LUA_SPECIAL.sub(_escape("\\{:03d}"), text) + '"'


def _tcl_text(text: str) -> str:
    return '"' + _TCL_SPECIAL.sub(_escape("\\u{:04x}"), text) + '"'


def _escape(form: str) -> Callable[[re.Match[str]], str]:
    return lambda match: form.format(ord(match[0]))
