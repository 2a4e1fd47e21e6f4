# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.cmake import mend_cmake
from tests.unit.foundation.repairs.trees import context, make_tree

UP = 'get_filename_component(_IMPORT_PREFIX "${_IMPORT_PREFIX}" PATH)\n'
TARGETS = f"""\
get_filename_component(_IMPORT_PREFIX "${{CMAKE_CURRENT_LIST_FILE}}" PATH)
# Use original install prefix when loaded through a
# cross-prefix symbolic link such as /lib -> /usr/lib.
get_filename_component(_realCurr "${{_IMPORT_PREFIX}}" REALPATH)
get_filename_component(_realOrig "/usr/lib/x86_64-linux-gnu/cmake/demo" REALPATH)
if(_realCurr STREQUAL _realOrig)
  set(_IMPORT_PREFIX "/usr/lib/x86_64-linux-gnu/cmake/demo")
endif()
unset(_realOrig)
unset(_realCurr)
{UP * 4}if(_IMPORT_PREFIX STREQUAL "/")
  set(_IMPORT_PREFIX "")
endif()
set(x "${{_IMPORT_PREFIX}}/lib/x86_64-linux-gnu/libdemo.so")
"""
CONFIG = """\
get_filename_component(PACKAGE_PREFIX_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../../" ABSOLUTE)
set(modules "/usr/share/demo/cmake")
set(library "/lib/x86_64-linux-gnu/libdemo.so.1")
"""
BOOST = """\
get_filename_component(_BOOST_CMAKEDIR "${CMAKE_CURRENT_LIST_DIR}/../" REALPATH)
if(EXISTS "/build/boost-1/debian/tmp/usr/lib/cmake")
  if(_BOOST_CMAKEDIR STREQUAL _BOOST_CMAKEDIR_ORIGINAL)
    set(_BOOST_CMAKEDIR "/build/boost-1/debian/tmp/usr/lib/cmake")
  endif()
endif()
get_filename_component(_BOOST_INCLUDEDIR "${_BOOST_CMAKEDIR}/../../../include/" ABSOLUTE)
"""


def mended(tmp_path: Path, text: str, where: str = "lib/cmake/demo/demo.cmake") -> str:
    make_tree(tmp_path, {where: text})
    mend_cmake(tmp_path, context())
    return (tmp_path / where).read_text()


def test_targets_find_the_prefix_at_the_new_depth(tmp_path: Path) -> None:
    text = mended(tmp_path, TARGETS)
    assert text.count(UP) == 3
    assert "/usr" not in text
    assert 'set(x "${_IMPORT_PREFIX}/lib/libdemo.so")' in text


def test_a_file_elsewhere_gets_its_own_depth(tmp_path: Path) -> None:
    assert mended(tmp_path, TARGETS, "share/demo/demo.cmake").count(UP) == 2


def test_configs_and_absolute_paths_begin_at_the_file(tmp_path: Path) -> None:
    assert mended(tmp_path, CONFIG) == (
        'get_filename_component(PACKAGE_PREFIX_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../" ABSOLUTE)\n'
        'set(modules "${CMAKE_CURRENT_LIST_DIR}/../../../share/demo/cmake")\n'
        'set(library "${CMAKE_CURRENT_LIST_DIR}/../../../lib/libdemo.so.1")\n'
    )


def test_boosts_build_tree_is_forgotten(tmp_path: Path) -> None:
    text = mended(tmp_path, BOOST)
    assert "/build/" not in text
    assert text.endswith('get_filename_component(_BOOST_INCLUDEDIR "${_BOOST_CMAKEDIR}/../../include/" ABSOLUTE)\n')
    assert "endif" not in text


def test_an_absolute_path_that_is_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"lib/cmake/demo/demo\.cmake still names /build/x"):
        mended(tmp_path, "set(x /build/x)\n")


def test_comments_may_mention_paths(tmp_path: Path) -> None:
    assert mended(tmp_path, "# reads /usr/share\n") == "# reads /usr/share\n"
