# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from channel_tools.foundation.repairs.mpi import relocate_mpich, use_mpich_abi_names
from channel_tools.system.elf import read_elf_file
from channel_tools.system.errors import FoundationError
from channel_tools.system.processes import run_command
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import TRIPLE, context, library_that_needs

WRAPPER = """\
#! /bin/bash
prefix=/usr
exec_prefix=/usr
sysconfdir=/etc/mpich
includedir=/usr/include/x86_64-linux-gnu/mpich
libdir=/usr/lib/x86_64-linux-gnu
{variable}="{compiler}"
wrapper_dl_type_flags=""
if [ -n "$MPICH_{variable}" ] ; then
    {variable}="$MPICH_{variable}"
fi
final_ldflags=" -L/usr/lib"
$Show ${variable} ${{final_ldflags}} "$@" -I$includedir -L$libdir ${{wrapper_dl_type_flags}} -lmpich
"""


def make_mpich(root: Path) -> Path:
    return make_tree(
        root,
        {
            "bin/mpicc.mpich": WRAPPER.format(variable="CC", compiler="gcc"),
            "bin/mpicxx.mpich": WRAPPER.format(variable="CXX", compiler="g++"),
            "bin/mpifort.mpich": "fortran",
            "bin/mpif90.mpich": "-> mpifort.mpich",
            "bin/mpiexec.hydra": "program",
            "bin/mpiexec.mpich": "-> mpiexec.hydra",
            "include/mpich/mpi.h": "header",
            "include/mpich/mpi.mod": "fortran",
            "lib/libmpich.so.12": "library",
            "lib/mpich/include": "-> ../../include/mpich",
            "lib/pkgconfig/mpich.pc": "includedir=${prefix}/include/mpich\n",
        },
    )


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    root = make_mpich(tmp_path / "env")
    relocate_mpich(root, context("mpich"))
    return root


def test_programs_have_their_plain_names(prefix: Path) -> None:
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == ["mpicc", "mpicxx", "mpiexec", "mpiexec.hydra"]
    assert (prefix / "bin" / "mpiexec").read_text() == "program"


def test_headers_lie_where_programs_look(prefix: Path) -> None:
    assert [path.name for path in (prefix / "include").iterdir()] == ["mpi.h"]
    assert (prefix / "lib/pkgconfig/mpich.pc").read_text() == "includedir=${prefix}/include\n"
    assert (prefix / "lib/libmpi.so.12").read_text() == "library"


def test_headers_and_links_in_one_folder_are_taken_out_of_it(tmp_path: Path) -> None:
    """As Debian has it since MPICH 4.2: the folder is MPICH's own, and links lead into it."""
    root = make_mpich(tmp_path / "env")
    for folder in ("include/mpich", "lib/mpich"):
        shutil.rmtree(root / folder)
    (root / "lib/pkgconfig/mpich.pc").unlink()
    package = (
        "prefix=${pcfiledir}/../../../..\nlibdir=${prefix}/lib/mpich/lib\nincludedir=${prefix}/lib/mpich/include\n"
    )
    make_tree(
        root,
        {
            "include/mpich": "-> ../lib/mpich/include",
            "lib/libmpi.so.12": "-> libmpich.so.12",
            "lib/libmpich.so": "-> libmpich.so.12",
            "lib/mpich/include/mpi.h": "header",
            "lib/mpich/lib/libmpich.so": "-> ../../libmpich.so",
            "lib/mpich/lib/pkgconfig/mpich.pc": package,
            "lib/pkgconfig/mpich.pc": "-> ../mpich/lib/pkgconfig/mpich.pc",
        },
    )
    relocate_mpich(root, context("mpich"))
    assert [path.name for path in (root / "include").iterdir()] == ["mpi.h"]
    assert not (root / "lib/mpich").exists()
    assert (root / "lib/libmpich.so").read_text() == "library"
    expected = "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\nincludedir=${prefix}/include\n"
    assert (root / "lib/pkgconfig/mpich.pc").read_text() == expected


@pytest.mark.parametrize(("program", "compiler"), [("mpicc", "cc"), ("mpicxx", "c++")])
def test_wrappers_call_the_conda_compiler_for_their_own_prefix(prefix: Path, program: str, compiler: str) -> None:
    env = {"PATH": "/usr/bin:/bin", "Show": "echo"}
    words = run_command([prefix / "bin" / program, "a.c"], env=env).stdout.split()
    assert words[0] == f"{TRIPLE}-{compiler}"
    assert words[1:] == ["a.c", f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-lmpich"]


def test_another_compiler_can_be_chosen(prefix: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "Show": "echo", "MPICH_CC": "mycc"}
    assert run_command([prefix / "bin" / "mpicc"], env=env).stdout.split()[0] == "mycc"


def test_a_wrapper_of_another_shape_is_an_error(tmp_path: Path) -> None:
    make_mpich(tmp_path)
    (tmp_path / "bin/mpicc.mpich").write_text("#!/bin/sh\nprefix=/usr\n")
    with pytest.raises(FoundationError, match="the wrapper for CC has another shape: 0 prefixes, 0 compilers"):
        relocate_mpich(tmp_path, context("mpich"))


def make_mpich_libraries(root: Path) -> Path:
    library_that_needs(root / "lib" / "libmpich.so.12.2.2")
    for name in ("libmpichcxx", "libmpichfort"):
        library_that_needs(root / "lib" / f"{name}.so.12.2.2", "libmpich.so.12")
    library_that_needs(root / "bin" / "mpichversion", "libmpich.so.12")
    (root / "lib" / "libmpi.so.12").symlink_to("libmpich.so.12")
    return root


def test_a_name_more_of_debians_leads_to_the_same_library(tmp_path: Path) -> None:
    root = make_mpich_libraries(tmp_path / "env")
    (root / "lib" / "libmpichf90.so.12").symlink_to("libmpichfort.so.12.2.2")
    use_mpich_abi_names(root, context("mpich"))
    assert (root / "lib" / "libmpichf90.so.12").readlink() == Path("libmpifort.so.12.2.2")


def test_libraries_are_called_as_the_abi_calls_them(tmp_path: Path) -> None:
    root = make_mpich_libraries(tmp_path / "env")
    use_mpich_abi_names(root, context("mpich"))
    for name in ("libmpi", "libmpicxx", "libmpifort"):
        library = root / "lib" / f"{name}.so.12"
        assert library.resolve().name == f"{name}.so.12.2.2"
        assert read_elf_file(library).soname == f"{name}.so.12"
        assert (root / "lib" / f"{name}.so").resolve() == library.resolve()
    assert "libmpi.so.12" in read_elf_file(root / "bin" / "mpichversion").needed
    needed = {name for path in (root / "lib").iterdir() for name in read_elf_file(path).needed}
    assert not any(name.startswith("libmpich") for name in needed)


def test_what_is_linked_with_debians_names_still_starts(tmp_path: Path) -> None:
    root = make_mpich_libraries(tmp_path / "env")
    use_mpich_abi_names(root, context("mpich"))
    assert (root / "lib" / "libmpich.so.12").resolve() == (root / "lib" / "libmpi.so.12").resolve()
    assert (root / "lib" / "libmpich.so").is_file()


def test_another_layout_is_an_error(tmp_path: Path) -> None:
    root = make_mpich_libraries(tmp_path / "env")
    (root / "lib" / "libmpichcxx.so.12.2.2").unlink()
    with pytest.raises(FoundationError, match=r"expected one lib/libmpichcxx\.so\.12\.\*, found 0"):
        use_mpich_abi_names(root, context("mpich"))
