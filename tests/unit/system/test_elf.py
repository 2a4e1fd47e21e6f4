# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.elf import newest_glibc, read_elf, read_elf_file, search_folders
from channel_tools.system.errors import IntegrityError
from tests.unit.foundation.elf_files import shared_library

LIBRARY = shared_library(
    soname="liba.so.1", needed=["libb.so.2", "libc.so.6"], rpath="$ORIGIN:$ORIGIN/x", versions=["GLIBC_2.34", "OTHER_1"]
)


def test_dynamic_segment_is_read() -> None:
    info = read_elf(io.BytesIO(LIBRARY), name="liba.so.1")
    assert info.is_dynamic
    assert info.soname == "liba.so.1"
    assert info.needed == ("libb.so.2", "libc.so.6")
    assert info.rpaths == ("$ORIGIN", "$ORIGIN/x")
    assert info.symbol_versions == {"GLIBC_2.34", "OTHER_1"}


def test_a_program_that_really_runs_is_read() -> None:
    info = read_elf_file(Path(sys.executable).resolve())
    assert "libc.so.6" in info.needed
    assert newest_glibc(info.symbol_versions) is not None


@given(st.integers(min_value=1, max_value=len(LIBRARY) - 1))
def test_a_file_cut_short_is_an_integrity_error(length: int) -> None:
    with pytest.raises(IntegrityError, match=r"cut\.so: the ELF file is damaged or cut short"):
        read_elf(io.BytesIO(LIBRARY[:length]), name="cut.so")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.4", "GLIBCXX_3.4.30"}, (2, 34)),
        ({"GLIBC_2.17", "GLIBC_PRIVATE"}, (2, 17)),
        ({"GLIBC_ABI_DT_RELR"}, None),
        (set(), None),
    ],
)
def test_newest_glibc(versions: set[str], expected: tuple[int, ...] | None) -> None:
    assert newest_glibc(frozenset(versions)) == expected


@pytest.mark.parametrize(
    ("file", "rpath", "folder"),
    [
        ("lib/liba.so", "$ORIGIN", "lib"),
        ("bin/a", "$ORIGIN/../lib", "lib"),
        ("lib/x/y.so", "${ORIGIN}/..", "lib"),
        ("bin/a", "$ORIGIN/../../lib", "../lib"),
        ("bin/a", "/usr/lib", "/usr/lib"),
        ("bin/a", "$ORIGINAL", "$ORIGINAL"),
    ],
)
def test_rpaths_become_folders_of_the_prefix(file: str, rpath: str, folder: str) -> None:
    assert search_folders(file, (rpath,)) == (folder,)
