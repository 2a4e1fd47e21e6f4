# SPDX-License-Identifier: BSD-3-Clause
"""The variables under which a program of an environment runs, without a shell that was set up for it.

Activation scripts of packages are shell code, so their effect is found by running them once in bash, from a clean
start: nothing of the caller's Python or library paths, nor of an environment active there, reaches the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rattler.exceptions import ActivationError
from rattler.shell import ActivationVariables, PathModificationBehavior, Shell, activate

from channel_tools.commands import run_command
from channel_tools.errors import CommandError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SYSTEM_PATH = ("/usr/bin", "/bin")
_KEPT = frozenset({"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR"})
# where a site has what an activation script looks for: recipes/mpich
_SITE = frozenset({"CHANNEL_CRAY_MPICH_DIR", "CHANNEL_CRAY_PE_ROOT", "CRAY_MPICH_DIR", "MPICH_DIR"})
_OF_THE_SHELL = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})
_TIMEOUT_S = 60.0


def activated_environment(prefix: Path, *, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the activated environment at ``prefix``: PATH, CONDA_PREFIX, its activation scripts' effects.

    Of ``environ`` only who and where the user is (home, locale, temporary folder), and where the site's MPI is, is
    handed on. Raises UsageError when ``prefix`` is no environment and CommandError when an activation script fails.
    """
    prefix = prefix.absolute()
    if not (prefix / "conda-meta").is_dir():
        raise UsageError(f"{prefix}: no environment; expected a folder with conda-meta/")
    start = {name: value for name, value in environ.items() if name in _KEPT | _SITE} | {"PATH": ":".join(_SYSTEM_PATH)}
    result = run_command(
        ["bash", "--noprofile", "--norc", "-c", _script(prefix) + "\nexec env -0\n"], env=start, timeout_s=_TIMEOUT_S
    )
    pairs = (line.partition("=") for line in result.stdout.split("\0") if line)
    variables = {name: value for name, _, value in pairs if name not in _OF_THE_SHELL}
    # the activator puts its folders before a PATH that has the system's already
    variables["PATH"] = ":".join(dict.fromkeys(variables["PATH"].split(":")))
    return variables


def _script(prefix: Path) -> str:
    variables = ActivationVariables(None, _SYSTEM_PATH, PathModificationBehavior.Prepend)
    try:
        return activate(prefix, variables, Shell.bash).script
    except ActivationError as err:
        raise CommandError(f"{prefix}: the environment cannot be activated: {err}") from err
