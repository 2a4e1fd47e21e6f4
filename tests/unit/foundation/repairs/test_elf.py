# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from channel_tools.elf import read_elf_file
from channel_tools.errors import FoundationError
from channel_tools.foundation.repairs.elf import dynamic_elf_files, link_sonames, set_rpaths
from tests.unit.foundation.elf_files import real_library, shared_library
from tests.unit.foundation.repairs.trees import context, make_tree

REAL_LIBRARY = real_library()


@pytest.mark.parametrize(
    ("where", "rpath"),
    [("lib/liba.so", "$ORIGIN"), ("bin/a", "$ORIGIN/../lib"), ("lib/x/y/z.so", "$ORIGIN/../..")],
)
def test_rpaths_lead_to_lib(tmp_path: Path, where: str, rpath: str) -> None:
    target = tmp_path / where
    target.parent.mkdir(parents=True)
    shutil.copyfile(REAL_LIBRARY, target)
    target.chmod(0o444)
    set_rpaths(tmp_path, context())
    assert read_elf_file(target).rpaths == (rpath,)
    assert read_elf_file(target).needed == read_elf_file(REAL_LIBRARY).needed


def test_the_packages_own_folders_come_first(tmp_path: Path) -> None:
    needed = next(name for name in read_elf_file(REAL_LIBRARY).needed if name.startswith("libc."))
    make_tree(tmp_path, {"bin/a": REAL_LIBRARY.read_bytes(), f"lib/private/{needed}": REAL_LIBRARY.read_bytes()})
    shutil.copyfile(REAL_LIBRARY, tmp_path / "lib" / "private" / needed)
    # the soname decides; this library has none, so its file name counts
    set_rpaths(tmp_path, context())
    assert read_elf_file(tmp_path / "bin" / "a").rpaths == ("$ORIGIN/../lib/private", "$ORIGIN/../lib")


def test_only_files_that_the_loader_reads_are_touched(tmp_path: Path) -> None:
    library = shared_library(soname="liba.so.1")
    make_tree(
        tmp_path, {"lib/a.o": library, "lib/text.so": "no ELF", "lib/liba.so.1": library, "lib/l": "-> liba.so.1"}
    )
    assert [path.name for path, _info in dynamic_elf_files(tmp_path)] == ["liba.so.1"]


def test_soname_links_are_made_or_missed(tmp_path: Path) -> None:
    with pytest.raises(FoundationError, match=r"expected lib/libpsm1/libpsm_infinipath\.so\.1\.16"):
        link_sonames(tmp_path, context("libpsm-infinipath"))
    make_tree(tmp_path, {"lib/libpsm1/libpsm_infinipath.so.1.16": b"x"})
    link_sonames(tmp_path, context("libpsm-infinipath"))
    assert (tmp_path / "lib/libpsm_infinipath.so.1").read_bytes() == b"x"
