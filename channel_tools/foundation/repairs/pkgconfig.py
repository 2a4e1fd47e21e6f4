# SPDX-License-Identifier: BSD-3-Clause
"""``.pc`` files that find themselves: every path in them begins at ``${pcfiledir}``, the file's own folder.

A prefix can then be copied anywhere; nothing has to be rewritten when a package is installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error, way_up

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

_PREFIX_LINE = re.compile(r"^prefix\s*=.*$", re.MULTILINE)
_USR = re.compile(r"(?:(?<=-[IL])|(?<![\w./}]))/usr(?=/|\s|$)", re.MULTILINE)
_BUILD_FLAGS = re.compile(r"\s*-f(?:file|debug|macro)-prefix-map=\S+|\s*-specs=\S+")
_PRIVATE_LINE = re.compile(r"^(?:Requires|Libs)\.private:.*\n?", re.MULTILINE)
_ABSOLUTE = re.compile(r"(?:(?<=-[IL])|(?<![\w.}/]))/(?:usr|lib|build|tmp|home)\b\S*")


def mend_pkgconfig(tree: Path, context: RepairContext) -> None:
    """Make each ``.pc`` file relocatable. Raises FoundationError when an absolute path is left in one."""
    for path in files_in(tree):
        if path.suffix != ".pc" or path.is_symlink():
            continue
        where = relative_to_tree(path, tree)
        text = relocatable_pkgconfig(path.read_text(), up=way_up(where), multiarch=context.multiarch)
        if left := _ABSOLUTE.search(_without_comments(text)):
            raise step_error(context, f"{where} still names {left.group()}")
        path.write_text(text)


def forget_private_requires(tree: Path, context: RepairContext) -> None:
    """Drop what only linking the static library needs: the library is not there, and neither are those it names.

    pkgconf looks for the modules in ``Requires.private`` even where it lists compiler options alone. Raises
    FoundationError when no ``.pc`` file has such a line, so that the step leaves the table when it is needed no more.
    """
    changed = False
    for path in files_in(tree):
        if path.suffix == ".pc" and not path.is_symlink():
            text = path.read_text()
            path.write_text(kept := _PRIVATE_LINE.sub("", text))
            changed = changed or kept != text
    if not changed:
        raise step_error(context, "no .pc file has private requirements to forget")


def relocatable_pkgconfig(text: str, *, up: str, multiarch: str) -> str:
    """The text of a ``.pc`` file with its prefix derived from where it lies (``up`` leads from there to the prefix)."""
    text = _BUILD_FLAGS.sub("", text.replace(f"/{multiarch}", ""))
    own_prefix = f"prefix=${{pcfiledir}}/{up}"
    if _PREFIX_LINE.search(text):
        text = _PREFIX_LINE.sub(own_prefix.replace("\\", ""), text, count=1)
    else:
        text = f"{own_prefix}\n{text}"
    head, _, rest = text.partition(own_prefix)
    return head + own_prefix + _USR.sub("${prefix}", rest)


def _without_comments(text: str) -> str:
    kept = (line for line in text.splitlines() if not line.startswith(("#", "URL", "Description")))
    return "\n".join(kept)


STEPS: dict[str, Repair] = {
    "mend_pkgconfig": mend_pkgconfig,
    "forget_private_requires": forget_private_requires,
}
