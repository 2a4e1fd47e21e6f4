# SPDX-License-Identifier: BSD-3-Clause
"""The user's own programs that builds run: conda-build, a compiler cache. All are looked for before any build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.build.compiler_cache import find_compiler_cache
from channel_tools.build.conda_build import find_conda_build
from channel_tools.system.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.build.compiler_cache import CacheName, CompilerCache
    from channel_tools.build.model import EngineName


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildTools:
    """``conda_build`` None: the engine of this package's own requirements. ``compiler_cache`` None: no cache."""

    conda_build: Path | None = None
    compiler_cache: CompilerCache | None = None


def find_tools(
    engine: EngineName,
    compiler_cache: CacheName | None,
    environ: Mapping[str, str],
    *,
    cache: Path,
    from_failed: bool = False,
) -> BuildTools:
    """The programs on the caller's PATH; a compiler cache keeps what it has in ``cache``, unless its user says where.

    Raises CommandError for one that is missing or too old, UsageError for a compiler cache or ``from_failed`` with
    conda-build, which leaves no place for them.
    """
    conda_build = find_conda_build(environ) if engine == "conda-build" else None
    if conda_build is not None and (compiler_cache is not None or from_failed):
        option = "--from-failed" if from_failed else "--compiler-cache"
        message = f"{option} works with the engine that comes with this program, not with --engine conda-build"
        raise UsageError(message, hint="leave one of the two out")
    if compiler_cache is None:
        return BuildTools(conda_build=conda_build)
    return BuildTools(compiler_cache=find_compiler_cache(compiler_cache, environ, cache=cache))
