# SPDX-License-Identifier: BSD-3-Clause
"""Scripts that a conda client sources when an environment is activated, and their counterparts that restore.

Plain POSIX shell that is safe under ``set -eu`` and leaves no helper function or variable behind. What a variable held
before is kept in ``CONDA_BACKUP_<name>``, as the compilers of conda-forge do, and put back by the deactivation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HEADER = "# SPDX-License-Identifier: BSD-3-Clause\n# {what}\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One variable of the environment; ``value`` is the inside of a double-quoted shell word."""

    name: str
    value: str
    only_if_unset: tuple[str, ...] = ()
    """Leave the variable alone when one of these is set: the user has decided."""


def write_activation(
    tree: Path, name: str, settings: Sequence[Setting], *, what: str, before: str = "", after: str = ""
) -> None:
    """Write ``etc/conda/{activate,deactivate}.d/{activate,deactivate}-<name>.sh``.

    ``before`` and ``after`` are shell text around the assignments, for values that several of them share.
    """
    activate = [_HEADER.format(what=what), before, *(_activate(setting) for setting in settings), after]
    restore = [_HEADER.format(what="Puts back what the activation replaced."), *(_restore(one) for one in settings)]
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
