# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.commands import run_command
from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.mpi import mend_mpich
from tests.unit.foundation.repairs.trees import TRIPLE, context, make_tree

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
    mend_mpich(root, context("mpich"))
    return root


def test_programs_have_their_plain_names(prefix: Path) -> None:
    assert sorted(path.name for path in (prefix / "bin").iterdir()) == ["mpicc", "mpicxx", "mpiexec", "mpiexec.hydra"]
    assert (prefix / "bin" / "mpiexec").read_text() == "program"


def test_headers_lie_where_programs_look(prefix: Path) -> None:
    assert [path.name for path in (prefix / "include").iterdir()] == ["mpi.h"]
    assert (prefix / "lib/pkgconfig/mpich.pc").read_text() == "includedir=${prefix}/include\n"
    assert (prefix / "lib/libmpi.so.12").read_text() == "library"


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
        mend_mpich(tmp_path, context("mpich"))
