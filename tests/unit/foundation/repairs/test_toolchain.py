# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.foundation.repairs.toolchain import (
    link_libgcc,
    link_plain_names,
    link_sysroot_folders,
    place_binutils,
    place_compiler,
    place_sysroot,
    wrap_tools,
)
from channel_tools.system.errors import FoundationError
from channel_tools.system.processes import run_command
from tests.support.trees import make_tree, tree_state
from tests.unit.foundation.repairs.trees import MULTIARCH, TRIPLE, context

GCC = f"usr/lib/gcc/{MULTIARCH}/12"
# stands in for gcc: says with what it was called
ECHO = '#!/bin/sh\nfor word in "$0" "$@"; do echo "$word"; done\n'


def test_the_sysroot_keeps_debians_shape(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            f"lib/{MULTIARCH}/libm.so.6": "m",
            f"usr/lib/{MULTIARCH}/libm.so": f"GROUP ( /lib/{MULTIARCH}/libm.so.6 )",
            f"usr/lib/{MULTIARCH}/libanl.so": f"-> /lib/{MULTIARCH}/libanl.so.1",
            "usr/include/stdio.h": "",
            "usr/share/doc/libc6/copyright": "",
            "etc/ld.so.conf.d/x.conf": "",
        },
    )
    place_sysroot(tmp_path, context("sysroot_linux-64"))
    root = f"{TRIPLE}/sysroot"
    assert tree_state(tmp_path) == {
        f"{root}/lib/{MULTIARCH}/libm.so.6": "m",
        f"{root}/usr/lib/{MULTIARCH}/libm.so": f"GROUP ( /lib/{MULTIARCH}/libm.so.6 )",
        f"{root}/usr/lib/{MULTIARCH}/libanl.so": f"-> ../../../lib/{MULTIARCH}/libanl.so.1",
        f"{root}/usr/include/stdio.h": "",
    }


def make_merged_sysroot(root: Path) -> Path:
    """Debian's glibc since 13, after ``place_sysroot``."""
    usr = f"{TRIPLE}/sysroot/usr"
    make_tree(root, {f"{usr}/lib/{MULTIARCH}/libc.so.6": "c", f"{usr}/lib64/ld.so": f"-> ../lib/{MULTIARCH}/ld.so"})
    return root


def test_a_sysroot_with_all_files_in_usr_has_links_to_its_folders(tmp_path: Path) -> None:
    sysroot = make_merged_sysroot(tmp_path) / TRIPLE / "sysroot"
    link_sysroot_folders(tmp_path, context("sysroot_linux-64"))
    assert (sysroot / "lib" / MULTIARCH / "libc.so.6").read_text() == "c"
    assert (sysroot / "lib64/ld.so").readlink().as_posix() == "../usr/lib64/ld.so"


@pytest.mark.parametrize("files", [{"usr/include/a": ""}, {"usr/lib/a": "", "lib/a": ""}])
def test_a_sysroot_of_another_shape_is_an_error(tmp_path: Path, files: dict[str, str]) -> None:
    make_tree(tmp_path / TRIPLE / "sysroot", files)
    with pytest.raises(FoundationError, match="expected usr/lib in the sysroot, and no lib beside usr"):
        link_sysroot_folders(tmp_path, context("sysroot_linux-64"))


def test_an_empty_sysroot_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match="nothing is left for the sysroot"):
        place_sysroot(make_tree(tmp_path, {"usr/share/doc/x": ""}), context("sysroot_linux-64"))


def test_gcc_goes_below_the_triple_and_its_libraries_lead_to_lib(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            f"usr/bin/{MULTIARCH}-gcc-12": "gcc",
            "usr/bin/gcc-12": f"-> {MULTIARCH}-gcc-12",
            f"{GCC}/cc1": "cc1",
            f"{GCC}/libstdc++.so": f"-> ../../../{MULTIARCH}/libstdc++.so.6",
            "usr/include/c++/12/vector": "",
            "usr/share/doc/gcc/copyright": "",
        },
    )
    place_compiler(tmp_path, context("gcc_impl_linux-64"))
    assert tree_state(tmp_path) == {
        f"{TRIPLE}/bin/gcc": "gcc",
        f"{TRIPLE}/lib/gcc/{MULTIARCH}/12/cc1": "cc1",
        f"{TRIPLE}/lib/gcc/{MULTIARCH}/12/libstdc++.so": "-> ../../../../../lib/libstdc++.so.6",
        f"{TRIPLE}/include/c++/12/vector": "",
    }


def test_binutils_keep_their_libraries_to_themselves(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            f"usr/bin/{MULTIARCH}-ld.bfd": "ld",
            f"usr/bin/{MULTIARCH}-ld": f"-> {MULTIARCH}-ld.bfd",
            "usr/bin/ld": f"-> {MULTIARCH}-ld",
            f"usr/bin/{MULTIARCH}-gprofng": "profiler",
            f"usr/lib/{MULTIARCH}/libbfd.so": "bfd",
        },
    )
    place_binutils(tmp_path, context("binutils_impl_linux-64"))
    assert tree_state(tmp_path) == {
        f"{TRIPLE}/bin/ld.bfd": "ld",
        f"{TRIPLE}/bin/ld": "-> ld.bfd",
        f"{TRIPLE}/lib/libbfd.so": "bfd",
        f"{TRIPLE}/{MULTIARCH}/bin": "-> ../bin",
    }


@pytest.fixture
def wrapped(tmp_path: Path) -> Path:
    prefix = tmp_path / "a prefix"
    make_tree(prefix, {f"{TRIPLE}/bin/gcc": ECHO, f"{TRIPLE}/bin/ar": ECHO})
    wrap_tools(prefix, context("gcc_impl_linux-64"))
    return prefix


@pytest.mark.parametrize("program", ["gcc", "cc"])
def test_the_wrapper_adds_the_sysroot_of_its_own_prefix(wrapped: Path, program: str) -> None:
    words = run_command([wrapped / "bin" / f"{TRIPLE}-{program}", "-c", "a b.c"]).stdout.splitlines()
    assert words == [f"{wrapped}/{TRIPLE}/bin/gcc", f"--sysroot={wrapped}/{TRIPLE}/sysroot", "-c", "a b.c"]


def test_the_wrapper_works_from_the_path_and_through_links(wrapped: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "cc").symlink_to(wrapped / "bin" / f"{TRIPLE}-gcc")
    expected = f"--sysroot={wrapped}/{TRIPLE}/sysroot"
    env = {"PATH": f"{wrapped}/bin:{elsewhere}:/usr/bin:/bin"}
    for name in (f"{TRIPLE}-gcc", "cc"):
        assert run_command(["/bin/sh", "-c", name], env=env).stdout.splitlines()[1] == expected


def test_tools_that_need_no_sysroot_are_links(wrapped: Path) -> None:
    link = wrapped / "bin" / f"{TRIPLE}-ar"
    assert link.readlink().as_posix() == f"../{TRIPLE}/bin/ar"
    assert run_command([link]).stdout.splitlines() == [str(link)]


def test_the_linker_script_finds_libgcc(tmp_path: Path) -> None:
    folder = f"{TRIPLE}/lib/gcc/{MULTIARCH}/12"
    make_tree(tmp_path, {f"{folder}/libgcc_s.so": "GROUP ( libgcc_s.so.1 -lgcc )", "lib/libgcc_s.so.1": "library"})
    link_libgcc(tmp_path, context("libgcc-devel_linux-64"))
    assert (tmp_path / folder / "libgcc_s.so.1").read_text() == "library"


def test_steps_say_what_they_miss(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"expected one linker script libgcc_s\.so, found 0"):
        link_libgcc(tmp_path, context("libgcc-devel_linux-64"))
    with pytest.raises(FoundationError, match="no programs in"):
        wrap_tools(tmp_path, context("gcc_impl_linux-64"))
    with pytest.raises(FoundationError, match="no plain program names"):
        link_plain_names(tmp_path, context("other"))
    with pytest.raises(FoundationError, match="no compiler triple for linux-ppc64le"):
        wrap_tools(tmp_path, context("gcc", subdir="linux-ppc64le"))


def test_plain_names_lead_to_those_with_the_machine(tmp_path: Path) -> None:
    link_plain_names(tmp_path, context("gxx"))
    assert tree_state(tmp_path) == {"bin/c++": f"-> {TRIPLE}-c++", "bin/g++": f"-> {TRIPLE}-g++"}
