# SPDX-License-Identifier: BSD-3-Clause
"""pkg-config and CMake files that find themselves, so that a prefix can be copied anywhere and nothing is rewritten.

Every path in a ``.pc`` file begins at ``${pcfiledir}``, the file's own folder. CMake writes how many folders lie
between a package file and the prefix, in one of two forms; the number is set from where the file lies now, not by
dropping one, so that a file with another depth comes out right too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.cmake import write_cmake_package
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error, way_up

if TYPE_CHECKING:
    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

_PREFIX_LINE = re.compile(r"^prefix\s*=.*$", re.MULTILINE)
_USR = re.compile(r"(?:(?<=-[IL])|(?<![\w./}]))/usr(?=/|\s|$)", re.MULTILINE)
_BUILD_FLAGS = re.compile(r"\s*-f(?:file|debug|macro)-prefix-map=\S+|\s*-specs=\S+")
_PRIVATE_LINE = re.compile(r"^(?:Requires|Libs)\.private:.*\n?", re.MULTILINE)
_ABSOLUTE = re.compile(r"(?:(?<=-[IL])|(?<![\w.}/]))/(?:usr|lib|build|tmp|home)\b\S*")
# written by CMake for prefixes below /usr: takes the original prefix if the file is reached through a link to it
_USR_MOVE = re.compile(
    r"# Use original install prefix when loaded through a.*?unset\(_realOrig\)\nunset\(_realCurr\)\n", re.DOTALL
)
# written by Boost's build: takes the build tree while it exists
_BOOST_BUILD = re.compile(r'^if\(EXISTS "/build/[^\n]*\n.*?^endif\(\)\n', re.DOTALL | re.MULTILINE)
_UP_LINE = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
_UP_LINES = re.compile(f"(?:{re.escape(_UP_LINE)})+")
_LIST_DIR_UP = re.compile(r'(?<=\$\{CMAKE_CURRENT_LIST_DIR\}/)(?:\.\./){2,}(?=" ABSOLUTE)')
_CMAKE_ABSOLUTE = re.compile(r'(?<=")/(?:usr(?:/lib)?|lib)(?=[/"])')
_CMAKE_LEFT = re.compile(r'(?<=["\s;(])/(?:usr|lib|build|tmp)/[^"\s)]*')
_PROTOBUF_TEMPLATES = Path(__file__).parent.parent / "data" / "pkgconfig"
_PROTOBUF_FILES = ("protobuf-config.cmake.in", "protobuf-config-version.cmake.in")
_PROTOBUF_EXPECTED = ("lib/libprotobuf.so", "lib/libprotobuf-lite.so", "lib/libprotoc.so", "bin/protoc")


def relocate_pkgconfig(tree: Path, context: RepairContext) -> None:
    """Make each ``.pc`` file relocatable. Raises FoundationError when an absolute path is left in one."""
    for path in files_in(tree):
        if path.suffix != ".pc" or path.is_symlink():
            continue
        where = relative_to_tree(path, tree)
        text = relocatable_pkgconfig(path.read_text(), up=way_up(where), multiarch=context.multiarch)
        if left := _ABSOLUTE.search(_without_comments(text)):
            raise step_error(context, f"{where} still names {left.group()}")
        path.write_text(text)


def drop_private_requires(tree: Path, context: RepairContext) -> None:
    """Drop what only linking the static library needs: the library is not there, and neither are those it names.

    pkgconf looks for the modules in ``Requires.private`` even where it lists compiler options alone. Raises
    FoundationError when no ``.pc`` file has such a line, so that the step leaves the table when it is needed no more.
    """
    changed = False
    for path in files_in(tree):
        if path.suffix == ".pc" and not path.is_symlink():
            text = path.read_text()
            path.write_text(public := _PRIVATE_LINE.sub("", text))
            changed = changed or public != text
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
    head, _, below = text.partition(own_prefix)
    return head + own_prefix + _USR.sub("${prefix}", below)


def _without_comments(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.startswith(("#", "URL", "Description")))
    return "\n".join(lines)


def relocate_cmake(tree: Path, context: RepairContext) -> None:
    """Make each ``.cmake`` file relocatable. Raises FoundationError when an absolute path is left in one."""
    for path in files_in(tree):
        if path.suffix != ".cmake" or path.is_symlink():
            continue
        where = relative_to_tree(path, tree)
        text = relocatable_cmake(path.read_text(), up=way_up(where), multiarch=context.multiarch)
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        if left := _CMAKE_LEFT.search(code):
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
    return _CMAKE_ABSOLUTE.sub(
        lambda match: f"${{CMAKE_CURRENT_LIST_DIR}}/{up}" + ("/lib" if match.group().endswith("lib") else ""), text
    )


def write_protobuf_cmake(tree: Path, context: RepairContext) -> None:
    """Write ``lib/cmake/protobuf`` with the targets that upstream's own CMake package defines."""
    templates = [_PROTOBUF_TEMPLATES / name for name in _PROTOBUF_FILES]
    write_cmake_package(tree, context, "protobuf", expected=_PROTOBUF_EXPECTED, templates=templates)


STEPS: dict[str, Repair] = {
    "relocate_pkgconfig": relocate_pkgconfig,
    "drop_private_requires": drop_private_requires,
    "relocate_cmake": relocate_cmake,
    "write_protobuf_cmake": write_protobuf_cmake,
}
