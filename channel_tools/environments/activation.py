# SPDX-License-Identifier: BSD-3-Clause
"""Determines the variables for programs of an environment, without an activated shell.

Activation scripts of packages are shell code, so their effect is found by running them once in bash with a clean
environment: the caller's Python and library paths and an active environment have no effect on the program. If the
program is the caller's own script, the caller's variables are passed on.

Module files that activate an environment by ``module load``: for Lmod in Lua, for Environment Modules in Tcl.

They hold what the activation scripts set when the file is written, so that loading runs no scripts and unloading undoes
it. Write the file again where a script would find something else by then, such as another MPI of the site.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

from rattler.exceptions import ActivationError
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from channel_tools.system.document import decode_json
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.files import absolute_path, read_regular, write_text_atomically
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

IMAGE_DESCRIPTION = "share/channel_tools/image/image.json"
"""What an environment that is an image says of itself."""
_DESCRIPTION_BYTES = 2**16
SYSTEM_PATH = ("/usr/bin", "/bin")
_KEPT = frozenset({"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR"})
# where a site's own libraries are, for the activation scripts of recipes/*-external, mpich and fabric-profile
_OF_THE_SITE = re.compile(r"CHANNEL_(?!TOOLS)[A-Z_]+_(?:DIR|ROOT)|PE_MPICH_GTL_DIR_\w+")
_OF_MODULES = frozenset(
    {
        *("CRAY_MPICH_DIR", "MPICH_DIR", "CRAY_MPICH_PREFIX", "CRAY_MPICH_ROOTDIR", "CRAY_LD_LIBRARY_PATH"),
        *("ROCM_PATH", "HIP_PATH", "XILINX_XRT"),
    }
)
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
# of another environment that is active
_OF_ANOTHER = re.compile(r"CONDA_.*|_CE_.*|PYTHONHOME|VIRTUAL_ENV.*|BASH_ENV|BASH_FUNC_.*")
_TIMEOUT_S = 60.0
_MAX_PREFIX_BYTES = 255
_UNUSABLE = re.compile("""[\x00-\x1f\x7f:"'`$\\\\]|[\ud800-\udfff]""")


LUA_SUFFIX = ".lua"
# of conda's own stack of environments, and of a shell's prompt
_LEFT_OUT = re.compile(r"CONDA_(?:SHLVL|PROMPT_MODIFIER|DEFAULT_ENV|ENV_SHLVL.*)|PS1")
_LUA_SPECIAL = re.compile(r'[\\"\x00-\x1f\x7f]')
_TCL_SPECIAL = re.compile(r'[\\"$\[\]\x00-\x1f\x7f]')


def user_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environ`` for the user (home, locale, temporary folder) and where the site's libraries are."""
    kept = _KEPT | _OF_MODULES
    return {name: value for name, value in environ.items() if name in kept or _OF_THE_SITE.fullmatch(name)}


def check_prefix_path(prefix: Path) -> None:
    """Raise UsageError for a path at which an environment cannot work.

    PATH cannot contain a path with a colon; activation (rattler 0.28) puts the path into a shell's double quotes, which
    would run anything in backquotes; scripts and Python's configuration have it in quotes and lines; and packages have
    room for 255 bytes.
    """
    match = _UNUSABLE.search(str(prefix))
    if match is not None:
        message = f"{str(prefix)!r}: an environment cannot work at a path with {match[0]!r} in it"
        raise UsageError(message, hint="choose a prefix without control characters and without any of : \" ' ` $ \\")
    if (length := len(os.fsencode(prefix))) > _MAX_PREFIX_BYTES:
        message = f"{prefix}: the path has {length} bytes; packages have room for {_MAX_PREFIX_BYTES}"
        raise UsageError(message, hint="choose a prefix with a shorter path")


def check_environment(prefix: Path) -> None:
    """Raise UsageError unless there is an environment at ``prefix``."""
    if not (prefix / "conda-meta").is_dir():
        found = "a folder without conda-meta/" if prefix.is_dir() else "no such folder"
        message = f"{prefix}: not an environment: {found}; expected a folder with conda-meta/"
        raise UsageError(message, hint="correct the path, or make one with: channel_tools env create PREFIX")


def check_place(prefix: Path) -> None:
    """Raise UsageError for an environment of an image that is at another place than the one it was made for."""
    try:
        described = decode_json(read_regular(prefix / IMAGE_DESCRIPTION, limit_bytes=_DESCRIPTION_BYTES))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return
    at = described.get("at") if isinstance(described, dict) else None
    if at is not None and at != str(prefix):
        message = f"{prefix}: is an image that was made for {at}, which its files name"
        raise UsageError(
            message, hint=f"mount it at {at}, or make it again: channel_tools env image --at {shlex.quote(str(prefix))}"
        )


def activated_environment(prefix: Path, *, environ: Mapping[str, str], inherit: bool = False) -> dict[str, str]:
    """The variables of the activated environment at ``prefix``: PATH, CONDA_PREFIX, its activation scripts' effects.

    Only the variables of ``environ`` for the user (home, locale, temporary folder) and the site's libraries are passed
    on; with ``inherit``, all except those of another active environment, with its PATH after this one's.

    Raises UsageError if ``prefix`` is not an environment or has a path at which none can work, and CommandError if an
    activation script fails.
    """
    prefix = absolute_path(prefix)
    check_prefix_path(prefix)
    check_environment(prefix)
    check_place(prefix)
    all_kept = {name: value for name, value in environ.items() if _OF_ANOTHER.fullmatch(name) is None}
    inherited = all_kept if inherit else user_variables(environ)
    path = tuple(environ.get("PATH", "").split(":")) if inherit else ()
    start = {**inherited, "PATH": ":".join(dict.fromkeys((*filter(None, path), *SYSTEM_PATH)))}
    script = _script(prefix, path=start["PATH"].split(":"))
    result = run_command(
        ["bash", "--noprofile", "--norc", "-c", script + "\nexec env -0\n"], env=start, timeout_s=_TIMEOUT_S
    )
    pairs = (line.partition("=") for line in result.stdout.split("\0") if line)
    variables = {name: value for name, _, value in pairs if name not in _OF_THE_SHELL}
    # the activator puts its folders before a PATH that already has the system's
    variables["PATH"] = ":".join(dict.fromkeys(variables["PATH"].split(":")))
    return variables


def activation_script(prefix: Path, *, environ: Mapping[str, str]) -> str:
    """The lines by which bash or zsh activates the environment at ``prefix``, as a client of conda does.

    ``environ`` are the shell's variables. Raises UsageError if ``prefix`` is not an environment or has a path at which
    none can work, and CommandError.
    """
    prefix = absolute_path(prefix)
    check_prefix_path(prefix)
    check_environment(prefix)
    check_place(prefix)
    path = environ.get("PATH", "").split(":")
    return _script(prefix, path=path, change=PathModificationBehavior.Replace)


def _script(
    prefix: Path, *, path: Sequence[str], change: PathModificationBehavior = PathModificationBehavior.Prepend
) -> str:
    variables = ActivationVariables(None, path, change)
    try:
        return activate(prefix, variables, Shell.bash).script
    except ActivationError as err:
        raise CommandError(f"{prefix}: the environment cannot be activated: {err}") from err


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
