# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.pkgconfig import forget_private_requires, mend_pkgconfig
from tests.unit.foundation.repairs.trees import MULTIARCH, context, make_tree

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


def mended(tmp_path: Path, text: str, where: str = "lib/pkgconfig/demo.pc") -> str:
    make_tree(tmp_path, {where: text})
    mend_pkgconfig(tmp_path, context())
    return (tmp_path / where).read_text()


def test_every_path_begins_at_the_file(tmp_path: Path) -> None:
    text = mended(tmp_path, PLAIN)
    assert text.splitlines()[:4] == [
        "prefix=${pcfiledir}/../..",
        "exec_prefix=${prefix}",
        "libdir=${prefix}/lib",
        "includedir=${prefix}/include",
    ]
    assert "Description: reads ${prefix}/share/demo" in text


def test_a_missing_prefix_line_is_added(tmp_path: Path) -> None:
    text = mended(tmp_path, NO_PREFIX)
    assert text.startswith("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\nincludedir=${prefix}/include\n")


def test_blanks_around_the_sign_are_understood(tmp_path: Path) -> None:
    text = mended(tmp_path, SPACED)
    assert text.startswith("# comment\nprefix=${pcfiledir}/../..\nlibdir = ${prefix}/lib/ucx\n")


def test_the_depth_follows_where_the_file_lies(tmp_path: Path) -> None:
    assert mended(tmp_path, PLAIN, "lib/demo/pkgconfig/demo.pc").startswith("prefix=${pcfiledir}/../../..\n")


def test_flags_of_debians_build_go(tmp_path: Path) -> None:
    assert "Cflags: -O2 -I${prefix}/include\n" in mended(tmp_path, FLAGS)


def test_paths_in_flags_begin_at_the_prefix_too(tmp_path: Path) -> None:
    text = mended(
        tmp_path, "prefix=/usr\nName: demo\nLibs: -L/usr/lib/x86_64-linux-gnu -ldemo\nCflags: -I/usr/include/demo\n"
    )
    assert text.endswith("Libs: -L${prefix}/lib -ldemo\nCflags: -I${prefix}/include/demo\n")


def test_an_absolute_path_that_is_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"lib/pkgconfig/demo\.pc still names /build/x"):
        mended(tmp_path, "prefix=/usr\nName: demo\nLibs: -L/build/x\n")


def test_private_requirements_are_forgotten(tmp_path: Path) -> None:
    text = "Name: demo\nRequires: other\nLibs: -ldemo\nLibs.private: -lrt\nRequires.private:  krb5 norm\nCflags: -I.\n"
    make_tree(tmp_path, {"lib/pkgconfig/demo.pc": text})
    forget_private_requires(tmp_path, context())
    left = (tmp_path / "lib/pkgconfig/demo.pc").read_text()
    assert left == "Name: demo\nRequires: other\nLibs: -ldemo\nCflags: -I.\n"


def test_a_step_that_changes_nothing_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {"lib/pkgconfig/demo.pc": "Name: demo\nRequires: other\n"})
    with pytest.raises(FoundationError, match="private requirements"):
        forget_private_requires(tmp_path, context())
