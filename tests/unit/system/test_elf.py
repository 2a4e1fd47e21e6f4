# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channel_tools.system.elf import newest_glibc, read_elf, read_elf_file, renew_build_id, search_folders
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


def _elf(build_id: bytes, text: bytes) -> bytes:
    """An ELF file with one segment of notes, as a linker writes a build id."""
    note = struct.pack("<III", 4, len(build_id), 3) + b"GNU\0" + build_id
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4)
    return header + segment + note + text


def _renewed(content: bytes) -> bytes:
    stream = io.BytesIO(content)
    renew_build_id(stream)
    return stream.getvalue()


def test_a_build_id_follows_from_the_rest_of_the_file() -> None:
    first, second = _renewed(_elf(b"a" * 20, b"text")), _renewed(_elf(b"b" * 20, b"text"))

    assert first == second
    assert first != _renewed(_elf(b"a" * 20, b"tent"))
    assert first.endswith(b"text")
    assert len(first) == len(_elf(b"a" * 20, b"text"))


def _with_section(elf: bytes, name: bytes, kind: int) -> bytes:
    """The ELF file with an empty section."""
    names = b"\0" + name + b"\0"
    table = len(elf) + len(names)
    sections = bytes(64) + struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, 0, 0, 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, len(elf), len(names), 0, 0, 1, 0)
    return (
        elf[:40] + struct.pack("<Q", table) + elf[48:58] + struct.pack("<HHH", 64, 3, 2) + elf[64:] + names + sections
    )


@pytest.mark.parametrize(
    ("section", "kind", "stays"),
    [(b".gnu_debuglink", 1, True), (b".text", 8, True), (b".text", 1, False)],
    ids=["a stripped file", "its debug information", "a file by itself"],
)
def test_a_file_and_its_debug_information_keep_the_build_id_by_which_they_are_found(
    section: bytes, kind: int, *, stays: bool
) -> None:
    elf = _with_section(_elf(b"a" * 20, b"text"), section, kind)
    assert (_renewed(elf) == elf) is stays


@pytest.mark.parametrize(
    "content", [b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 80], ids=["script", "cut", "damaged"]
)
def test_what_has_no_build_id_stays(content: bytes) -> None:
    assert _renewed(content) == content
