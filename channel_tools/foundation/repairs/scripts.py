# SPDX-License-Identifier: BSD-3-Clause
"""Shell scripts of packages: programs, their wrappers, and what a conda client sources on activation.

Programs that print compiled-in paths go; wrappers find their prefix from where they lie. Activation scripts are plain
POSIX shell that is safe under ``set -eu`` and leaves no helper function or variable behind. What a variable was before
is kept in ``CONDA_BACKUP_<name>``, as the compilers of conda-forge do, and put back by the deactivation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error
from channel_tools.system.counting import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

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
_SCRIPT_HEADER = "# SPDX-License-Identifier: BSD-3-Clause\n# {reason}\n"
_CERTIFICATE_BUNDLE = "ssl/cacert.pem"
_LEAST_CERTIFICATES = 50
_CERTIFICATE_BEGINS = "-----BEGIN CERTIFICATE-----"


def write_program(path: Path, text: str) -> None:
    """Write an executable script, replacing what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(_PROGRAM_MODE)


def drop_host_scripts(tree: Path, context: RepairContext) -> None:
    """Drop ``*-config`` scripts (pkg-config gives the same, relocatably) and programs for the host's interpreters."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One variable of the environment; ``value`` is the inside of a double-quoted shell word."""

    name: str
    value: str
    only_if_unset: tuple[str, ...] = ()
    """Leave the variable alone when one of these is set: the user has decided."""


def write_activation(
    tree: Path, name: str, settings: Sequence[Setting], *, reason: str, before: str = "", after: str = ""
) -> None:
    """Write ``etc/conda/{activate,deactivate}.d/{activate,deactivate}-<name>.sh``.

    ``before`` and ``after`` are shell text around the assignments, for values that several of them share.
    """
    activate = [_SCRIPT_HEADER.format(reason=reason), before, *(_activate(setting) for setting in settings), after]
    restore = [
        _SCRIPT_HEADER.format(reason="Puts back what the activation replaced."),
        *(_restore(setting) for setting in settings),
    ]
    for kind, text in (("activate", "".join(activate)), ("deactivate", "".join(restore))):
        script = tree / "etc" / "conda" / f"{kind}.d" / f"{kind}-{name}.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(text)


def _activate(setting: Setting) -> str:
    name = setting.name
    if setting.only_if_unset:
        untouched = "".join(f"${{{other}+set}}" for other in setting.only_if_unset)
        return (
            f'if [ -z "{untouched}" ]; then\n'
            f'  export {name}="{setting.value}"\n'
            f'  export CONDA_SET_{name}="${name}"\n'
            f"fi\n"
        )
    return (
        f'if [ -n "${{{name}+set}}" ]; then export CONDA_BACKUP_{name}="${name}"; else unset CONDA_BACKUP_{name}; fi\n'
        f'export {name}="{setting.value}"\n'
    )


def _restore(setting: Setting) -> str:
    name = setting.name
    if setting.only_if_unset:
        return (
            f'if [ -n "${{CONDA_SET_{name}+set}}" ]; then\n'
            f'  if [ "${{{name}:-}}" = "$CONDA_SET_{name}" ]; then unset {name}; fi\n'
            f"  unset CONDA_SET_{name}\n"
            f"fi\n"
        )
    return (
        f'if [ -n "${{CONDA_BACKUP_{name}+set}}" ]; then\n'
        f'  export {name}="$CONDA_BACKUP_{name}"\n'
        f"  unset CONDA_BACKUP_{name}\n"
        f"else\n"
        f"  unset {name}\n"
        f"fi\n"
    )


def bundle_certificates(tree: Path, context: RepairContext) -> None:
    """Join Mozilla's certificates into ``ssl/cacert.pem``, with the link ``ssl/cert.pem`` that openssl looks for."""
    sources = sorted((tree / "share" / "ca-certificates").rglob("*.crt"))
    texts = [path.read_text().strip() for path in sources]
    if len(texts) < _LEAST_CERTIFICATES or not all(text.startswith(_CERTIFICATE_BEGINS) for text in texts):
        raise step_error(
            context, f"expected at least {_LEAST_CERTIFICATES} PEM certificates, found {counted(len(texts), 'file')}"
        )
    bundle = tree / _CERTIFICATE_BUNDLE
    bundle.parent.mkdir()
    bundle.write_text("\n".join(texts) + "\n")
    (bundle.parent / "cert.pem").symlink_to(bundle.name)


def activate_certificates(tree: Path, context: RepairContext) -> None:
    """Have the activation point openssl at the environment's certificates (``SSL_CERT_FILE``, ``SSL_CERT_DIR``)."""
    setting = Setting(
        name="SSL_CERT_FILE",
        value=f"$CONDA_PREFIX/{_CERTIFICATE_BUNDLE}",
        only_if_unset=("SSL_CERT_FILE", "SSL_CERT_DIR"),
    )
    reason = "This environment's certificates; openssl has another folder compiled in."
    write_activation(tree, context.entry.name, [setting], reason=reason)


STEPS: dict[str, Repair] = {
    "drop_host_scripts": drop_host_scripts,
    "wrap_pkg_config": wrap_pkg_config,
    "bundle_certificates": bundle_certificates,
    "activate_certificates": activate_certificates,
}
