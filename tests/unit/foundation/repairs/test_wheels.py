# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.repairs.wheels import place_cuda, place_nccl, wheel_libraries, wheel_program
from channel_tools.system.elf import read_elf_file
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree, tree_state
from tests.unit.foundation.elf_files import real_library, shared_library
from tests.unit.foundation.repairs.trees import context, library_that_needs

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.11/site-packages"


def test_what_needs_more_than_glibc_looks_into_its_own_folders_and_then_lib(tmp_path: Path) -> None:
    library = library_that_needs(
        tmp_path / SITE / "np/core/x.so", "libstdc++.so.6", rpath="$ORIGIN/../../np.libs:/opt/build/lib"
    )
    wheel_libraries(tmp_path, context())
    assert read_elf_file(library).rpaths == ("$ORIGIN/../../np.libs", "$ORIGIN", "$ORIGIN/../../../..")


def test_what_needs_only_glibc_is_left_as_it_is(tmp_path: Path) -> None:
    library = tmp_path / SITE / "x.so"
    library.parent.mkdir(parents=True)
    shutil.copyfile(real_library(), library)
    wheel_libraries(tmp_path, context())
    assert library.read_bytes() == real_library().read_bytes()


def test_a_program_moves_to_the_prefix_and_its_modules_go(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            f"{SITE}/tool/__init__.py": "",
            f"{SITE}/tool/data/bin/tool": "the program",
            f"{SITE}/tool/data/share/tool-1/x": "data",
            f"{SITE}/tool-1.0.dist-info/RECORD": "",
            "bin/tool": "a script that starts it",
        },
    )
    wheel_program(tmp_path, context("tool"))
    assert tree_state(tmp_path) == {"bin/tool": "the program", "share/tool-1/x": "data"}
    assert (tmp_path / "bin/tool").stat().st_mode & 0o111


def test_a_wheel_without_a_program_is_an_error(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"{SITE}/tool/x.so": shared_library()})
    with pytest.raises(FoundationError, match="expected a program"):
        wheel_program(tmp_path, context("tool"))


def test_the_runtime_lies_where_conda_forges_does(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{SITE}/nvidia/cu13/include/cuda.h": "header",
        f"{SITE}/nvidia/cu13/lib/libcudart.so.13": "shared",
        f"{SITE}/nvidia/cu13/lib/libcudart_static.a": "static",
        f"{SITE}/nvidia_cuda_runtime-13.0.dist-info/METADATA": "metadata",
    }
    root = make_tree(tmp_path / "env", files)
    place_cuda(root, context("cuda-cudart"))
    assert tree_state(root) == {
        "lib/libcudart.so": "-> ../targets/x86_64-linux/lib/libcudart.so",
        "lib/libcudart.so.13": "-> ../targets/x86_64-linux/lib/libcudart.so.13",
        "targets/x86_64-linux/include/cuda.h": "header",
        "targets/x86_64-linux/lib/libcudart.so": "-> libcudart.so.13",
        "targets/x86_64-linux/lib/libcudart.so.13": "shared",
        "targets/x86_64-linux/lib/libcudart_static.a": "static",
    }


def test_nccl_lies_in_the_prefix(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"{SITE}/nvidia/nccl/include/nccl.h": "header",
        f"{SITE}/nvidia/nccl/lib/libnccl.so.2": "shared",
    }
    root = make_tree(tmp_path / "env", files)
    place_nccl(root, context("nccl"))
    assert tree_state(root) == {
        "include/nccl.h": "header",
        "lib/libnccl.so": "-> libnccl.so.2",
        "lib/libnccl.so.2": "shared",
    }


def test_another_layout_is_an_error(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "env", {f"{SITE}/nvidia/other/lib/libx.so.1": "shared"})
    with pytest.raises(FoundationError, match=r"expected one folder nvidia/cu\[0-9\]\*, found 0"):
        place_cuda(root, context("cuda-cudart"))
