# SPDX-License-Identifier: BSD-3-Clause
"""Programs that are scripts: those that tell compiled-in paths go, wrappers find their prefix from where they lie."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_CONFIG_SCRIPT = re.compile(r"bin/[\w.+-]*-config$")
_HOST_INTERPRETER = re.compile(rb"#!\s*(?:/usr/bin/perl|/usr/bin/python[\d.]*)\b")
_PROGRAM_MODE = 0o755

# Finds the prefix without starting a process, unless the wrapper was reached through a link from another folder.
FIND_PREFIX = """\
self=$0
case $self in */*) ;; *) self=$(command -v -- "$self") ;; esac
if [ -L "$self" ]; then self=$(readlink -f -- "$self"); fi
bin=${self%/*}
prefix=${bin%/bin}
if [ "$prefix" = "$bin" ]; then prefix=$bin/..; fi
"""
_PKG_CONFIG = """\
#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pkgconf that knows only this environment; PKG_CONFIG_PATH still adds to it, PKG_CONFIG_LIBDIR still replaces it.
{find_prefix}\
if [ -z "${{PKG_CONFIG_LIBDIR+set}}" ]; then
  PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig:$prefix/share/pkgconfig
  if [ "${{CONDA_BUILD:-}}" = 1 ] && [ -n "${{PREFIX:-}}" ]; then
    PKG_CONFIG_LIBDIR=$PREFIX/lib/pkgconfig:$PREFIX/share/pkgconfig:$PKG_CONFIG_LIBDIR
  fi
  export PKG_CONFIG_LIBDIR
fi
exec "$prefix/bin/pkgconf" "$@"
"""


def write_program(path: Path, text: str) -> None:
    """Write an executable script, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(_PROGRAM_MODE)


def drop_host_scripts(tree: Path, context: RepairContext) -> None:
    """Drop ``*-config`` scripts (pkg-config tells the same, relocatably) and programs for the host's interpreters."""
    del context
    for path in list(files_in(tree)):
        where = str(relative_to_tree(path, tree))
        if where.startswith("bin/") and (_CONFIG_SCRIPT.match(where) or _runs_on_host(path)):
            path.unlink()


def _runs_on_host(path: Path) -> bool:
    if path.is_symlink():
        return False
    with path.open("rb") as stream:
        return _HOST_INTERPRETER.match(stream.read(64)) is not None


def wrap_pkg_config(tree: Path, context: RepairContext) -> None:
    """Put a wrapper at bin/pkg-config that looks only into the environment's own folders."""
    if not (tree / "bin" / "pkgconf").is_file():
        raise step_error(context, "expected the program bin/pkgconf")
    write_program(tree / "bin" / "pkg-config", _PKG_CONFIG.format(find_prefix=FIND_PREFIX))


STEPS: dict[str, Repair] = {
    "drop_host_scripts": drop_host_scripts,
    "wrap_pkg_config": wrap_pkg_config,
}
