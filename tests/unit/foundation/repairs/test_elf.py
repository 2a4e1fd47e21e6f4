# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from channel_tools.foundation.repairs.elf import (
    dynamic_elf_files,
    find_verbs_drivers,
    hide_host_plugins,
    link_sonames,
    rpath_of,
    set_rpaths,
)
from channel_tools.system.elf import read_elf_file
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.elf_files import real_library, shared_library
from tests.unit.foundation.repairs.trees import MULTIARCH, context

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


@pytest.mark.parametrize(
    ("folders", "where", "expected"),
    [
        (["lib"], "lib/libx.so", "$ORIGIN"),
        (["lib"], "bin/x", "$ORIGIN/../lib"),
        (["lib", "lib/a", "lib"], "lib/a/x.so", "$ORIGIN/..:$ORIGIN"),
    ],
)
def test_rpaths_are_relative_and_name_a_folder_once(folders: list[str], where: str, expected: str) -> None:
    assert rpath_of(folders, where) == expected


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


FOLDER = f"/usr/lib/{MULTIARCH}/"


def test_compiled_in_folders_become_one_that_is_not_there(tmp_path: Path) -> None:
    library = shared_library(soname="liba.so") + f"\0{FOLDER}demo/x.so\0".encode()
    make_tree(tmp_path, {"lib/liba.so": library})
    hide_host_plugins(tmp_path, context())
    content = (tmp_path / "lib/liba.so").read_bytes()
    assert len(content) == len(library)
    assert FOLDER.encode() not in content
    assert b"\0/nonexistent" + b"/" * (len(FOLDER) - len("/nonexistent")) + b"demo/x.so\0" in content


def test_nothing_to_hide_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {"lib/liba.so": shared_library(soname="liba.so")})
    with pytest.raises(FoundationError, match=r"no library names /usr/lib/x86_64-linux-gnu/"):
        hide_host_plugins(tmp_path, context())


def make_rdma(root: Path) -> Path:
    make_tree(
        root,
        {
            "etc/libibverbs.d/mlx5.driver": "driver mlx5\n",
            "etc/libibverbs.d/efa.driver": "driver efa\n",
            "lib/libibverbs/libmlx5-rdmav34.so": shared_library() + FOLDER.encode(),
            "lib/libibverbs/libefa-rdmav34.so": shared_library(),
            "lib/libibverbs.so.1": "-> libibverbs.so.1.14",
        },
    )
    shutil.copyfile(REAL_LIBRARY, root / "lib/libibverbs.so.1.14")
    return root


@pytest.fixture
def rdma(tmp_path: Path) -> Path:
    return make_rdma(tmp_path)


def test_verbs_drivers_are_found_by_rpath_and_by_name(rdma: Path) -> None:
    find_verbs_drivers(rdma, context("rdma-core"))
    assert read_elf_file(rdma / "lib/libibverbs.so.1.14").rpaths == ("$ORIGIN", "$ORIGIN/libibverbs")
    script = (rdma / "etc/conda/activate.d/activate-rdma-core.sh").read_text()
    assert 'export IBV_DRIVERS="efa:mlx5"' in script


def test_a_driver_without_library_is_an_error(rdma: Path) -> None:
    (rdma / "lib/libibverbs/libefa-rdmav34.so").unlink()
    with pytest.raises(FoundationError, match=r"2 driver names, without library: \['efa'\], 1 of libibverbs"):
        find_verbs_drivers(rdma, context("rdma-core"))
