# SPDX-License-Identifier: BSD-3-Clause
"""CMake package files that find themselves after the multiarch folder is gone.

CMake writes how many folders lie between such a file and the prefix, in one of two forms; the number is set from where
the file lies now, not by dropping one, so that a file with another depth comes out right too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error, way_up

if TYPE_CHECKING:
    from pathlib import Path

    from channel_tools.foundation.model import Repair, RepairContext

# written by CMake for prefixes below /usr: takes the original prefix if the file is reached through a link to it
_USR_MOVE = re.compile(
    r"# Use original install prefix when loaded through a.*?unset\(_realOrig\)\nunset\(_realCurr\)\n", re.DOTALL
)
# written by Boost's build: takes the build tree while it exists
_BOOST_BUILD = re.compile(r'^if\(EXISTS "/build/[^\n]*\n.*?^endif\(\)\n', re.DOTALL | re.MULTILINE)
_UP_LINE = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
_UP_LINES = re.compile(f"(?:{re.escape(_UP_LINE)})+")
_LIST_DIR_UP = re.compile(r'(?<=\$\{CMAKE_CURRENT_LIST_DIR\}/)(?:\.\./){2,}(?=" ABSOLUTE)')
_ABSOLUTE = re.compile(r'(?<=")/(?:usr(?:/lib)?|lib)(?=[/"])')
_LEFT = re.compile(r'(?<=["\s;(])/(?:usr|lib|build|tmp)/[^"\s)]*')


def mend_cmake(tree: Path, context: RepairContext) -> None:
    """Make each ``.cmake`` file relocatable. Raises FoundationError when an absolute path is left in one."""
    for path in files_in(tree):
        if path.suffix != ".cmake" or path.is_symlink():
            continue
        where = relative_to_tree(path, tree)
        text = relocatable_cmake(path.read_text(), up=way_up(where), multiarch=context.multiarch)
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        if left := _LEFT.search(code):
            raise step_error(context, f"{where} still names {left.group()}")
        path.write_text(text)


def relocatable_cmake(text: str, *, up: str, multiarch: str) -> str:
    """The text of a CMake file with every path derived from where it lies (``up`` leads from there to the prefix)."""
    text = _BOOST_BUILD.sub("", _USR_MOVE.sub("", text))
    text = text.replace(f"lib/{multiarch}", "lib")
    text = text.replace("${_BOOST_CMAKEDIR}/../../../include/", "${_BOOST_CMAKEDIR}/../../include/")
    depth = up.count("..")
    text = _UP_LINES.sub(lambda _: _UP_LINE * depth, text)
    text = _LIST_DIR_UP.sub("../" * depth, text)
    return _ABSOLUTE.sub(lambda match: _anchored(match.group(), up), text)


def _anchored(found: str, up: str) -> str:
    return f"${{CMAKE_CURRENT_LIST_DIR}}/{up}" + ("/lib" if found.endswith("lib") else "")


STEPS: dict[str, Repair] = {"mend_cmake": mend_cmake}
