# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.foundation.repairs.pkgconfig import (
    drop_private_requires,
    relocate_cmake,
    relocate_pkgconfig,
    write_protobuf_cmake,
)
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import MULTIARCH, context

PLAIN = """\
prefix=/usr
exec_prefix=/usr
libdir=/usr/lib/x86_64-linux-gnu
includedir=${prefix}/include

Name: demo
Description: reads /usr/share/demo
URL: https://example.org/usr/demo
Version: 1
Libs: -L${libdir} -ldemo
Cflags: -I${includedir}
"""
NO_PREFIX = f"libdir=/usr/lib/{MULTIARCH}\nincludedir=/usr/include\n\nName: demo\nLibs: -L${{libdir}} -ldemo\n"
SPACED = "# comment\nprefix = /usr\nlibdir = ${prefix}/lib/x86_64-linux-gnu/ucx\n\nName: demo\nLibs: -L${libdir}\n"
FLAGS = "prefix=/usr\nName: demo\nCflags: -O2 -ffile-prefix-map=/build/demo-1=. -I${prefix}/include\n"


def relocated(tmp_path: Path, text: str, where: str = "lib/pkgconfig/demo.pc") -> str:
    make_tree(tmp_path, {where: text})
    relocate_pkgconfig(tmp_path, context())
    return (tmp_path / where).read_text()


def test_every_path_begins_at_the_file(tmp_path: Path) -> None:
    text = relocated(tmp_path, PLAIN)
    assert text.splitlines()[:4] == [
        "prefix=${pcfiledir}/../..",
        "exec_prefix=${prefix}",
        "libdir=${prefix}/lib",
        "includedir=${prefix}/include",
    ]
    assert "Description: reads ${prefix}/share/demo" in text


def test_a_missing_prefix_line_is_added(tmp_path: Path) -> None:
    text = relocated(tmp_path, NO_PREFIX)
    assert text.startswith("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\nincludedir=${prefix}/include\n")


def test_blanks_around_the_sign_are_understood(tmp_path: Path) -> None:
    text = relocated(tmp_path, SPACED)
    assert text.startswith("# comment\nprefix=${pcfiledir}/../..\nlibdir = ${prefix}/lib/ucx\n")


def test_the_depth_follows_where_the_file_lies(tmp_path: Path) -> None:
    assert relocated(tmp_path, PLAIN, "lib/demo/pkgconfig/demo.pc").startswith("prefix=${pcfiledir}/../../..\n")


def test_flags_of_debians_build_go(tmp_path: Path) -> None:
    assert "Cflags: -O2 -I${prefix}/include\n" in relocated(tmp_path, FLAGS)


def test_paths_in_flags_begin_at_the_prefix_too(tmp_path: Path) -> None:
    text = relocated(
        tmp_path, "prefix=/usr\nName: demo\nLibs: -L/usr/lib/x86_64-linux-gnu -ldemo\nCflags: -I/usr/include/demo\n"
    )
    assert text.endswith("Libs: -L${prefix}/lib -ldemo\nCflags: -I${prefix}/include/demo\n")


def test_an_absolute_path_that_is_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"lib/pkgconfig/demo\.pc still names /build/x"):
        relocated(tmp_path, "prefix=/usr\nName: demo\nLibs: -L/build/x\n")


def test_private_requirements_are_forgotten(tmp_path: Path) -> None:
    text = "Name: demo\nRequires: other\nLibs: -ldemo\nLibs.private: -lrt\nRequires.private:  krb5 norm\nCflags: -I.\n"
    make_tree(tmp_path, {"lib/pkgconfig/demo.pc": text})
    drop_private_requires(tmp_path, context())
    left = (tmp_path / "lib/pkgconfig/demo.pc").read_text()
    assert left == "Name: demo\nRequires: other\nLibs: -ldemo\nCflags: -I.\n"


def test_a_step_that_changes_nothing_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {"lib/pkgconfig/demo.pc": "Name: demo\nRequires: other\n"})
    with pytest.raises(FoundationError, match="private requirements"):
        drop_private_requires(tmp_path, context())


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


def cmake_after(tmp_path: Path, text: str, where: str = "lib/cmake/demo/demo.cmake") -> str:
    make_tree(tmp_path, {where: text})
    relocate_cmake(tmp_path, context())
    return (tmp_path / where).read_text()


def test_targets_find_the_prefix_at_the_new_depth(tmp_path: Path) -> None:
    text = cmake_after(tmp_path, TARGETS)
    assert text.count(UP) == 3
    assert "/usr" not in text
    assert 'set(x "${_IMPORT_PREFIX}/lib/libdemo.so")' in text


def test_a_file_elsewhere_gets_its_own_depth(tmp_path: Path) -> None:
    assert cmake_after(tmp_path, TARGETS, "share/demo/demo.cmake").count(UP) == 2


def test_configs_and_absolute_paths_begin_at_the_file(tmp_path: Path) -> None:
    assert cmake_after(tmp_path, CONFIG) == (
        'get_filename_component(PACKAGE_PREFIX_DIR "${CMAKE_CURRENT_LIST_DIR}/../../../" ABSOLUTE)\n'
        'set(modules "${CMAKE_CURRENT_LIST_DIR}/../../../share/demo/cmake")\n'
        'set(library "${CMAKE_CURRENT_LIST_DIR}/../../../lib/libdemo.so.1")\n'
    )


def test_boosts_build_tree_is_forgotten(tmp_path: Path) -> None:
    text = cmake_after(tmp_path, BOOST)
    assert "/build/" not in text
    assert text.endswith('get_filename_component(_BOOST_INCLUDEDIR "${_BOOST_CMAKEDIR}/../../include/" ABSOLUTE)\n')
    assert "endif" not in text


def test_an_absolute_path_that_is_left_in_cmake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"lib/cmake/demo/demo\.cmake still names /build/x"):
        cmake_after(tmp_path, "set(x /build/x)\n")


def test_comments_may_mention_paths(tmp_path: Path) -> None:
    assert cmake_after(tmp_path, "# reads /usr/share\n") == "# reads /usr/share\n"


def test_the_cmake_package_names_the_version_and_no_place(tmp_path: Path) -> None:
    make_tree(tmp_path, dict.fromkeys(("lib/libprotobuf.so", "lib/libprotobuf-lite.so", "lib/libprotoc.so"), ""))
    make_tree(tmp_path, {"bin/protoc": ""})
    write_protobuf_cmake(tmp_path, context("libprotobuf"))
    folder = tmp_path / "lib/cmake/protobuf"
    assert 'set(Protobuf_VERSION "1.2.3")' in (folder / "protobuf-config.cmake").read_text()
    assert 'set(PACKAGE_VERSION "1.2.3")' in (folder / "protobuf-config-version.cmake").read_text()
    assert str(tmp_path) not in (folder / "protobuf-config.cmake").read_text()


def test_missing_parts_are_named(tmp_path: Path) -> None:
    make_tree(tmp_path, {"bin/protoc": ""})
    with pytest.raises(
        FoundationError, match=r"lacks lib/libprotobuf\.so, lib/libprotobuf-lite\.so, lib/libprotoc\.so"
    ):
        write_protobuf_cmake(tmp_path, context("libprotobuf"))
