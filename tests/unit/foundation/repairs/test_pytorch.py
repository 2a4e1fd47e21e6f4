# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.repairs.pytorch import split_libtorch, split_pytorch
from channel_tools.system.elf import read_elf_file
from channel_tools.system.errors import FoundationError
from tests.support.trees import make_tree
from tests.unit.foundation.repairs.trees import context, library_that_needs

if TYPE_CHECKING:
    from pathlib import Path

SITE = "lib/python3.11/site-packages"
CONFIG = """\
set(TORCH_INCLUDE_DIRS
  ${TORCH_INSTALL_PREFIX}/include
  ${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include)
"""
NVIDIA = "$ORIGIN:$ORIGIN/../../nvidia/cublas/lib"


def make_wheel(root: Path) -> Path:
    """PyTorch's wheel, in small."""
    torch = f"{SITE}/torch"
    names = (
        *(f"lib/{name}" for name in ("libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so", "libgomp.so.1")),
        *("lib/libtorch_global_deps.so", "lib/libjitbackend_test.so"),
        *("include/torch/torch.h", "include/c10/c10.h", "include/fmt/format.h", "include/google/protobuf/x.h"),
    )
    make_tree(
        root,
        {
            f"{torch}/__init__.py": "",
            f"{torch}/include/torch/torch.h": "torch",
            f"{torch}/include/c10/c10.h": "c10",
            f"{torch}/include/fmt/format.h": "fmt",
            f"{torch}/include/google/protobuf/x.h": "old",
            f"{torch}/share/cmake/Torch/TorchConfig.cmake": CONFIG,
            f"{torch}/share/cmake/Caffe2/Caffe2Config.cmake": "",
            f"{torch}/share/cmake/ATen/ATenConfig.cmake": "",
            f"{torch}/share/cmake/Tensorpipe/x.cmake": "names a library that is not there",
            f"{SITE}/torch-2.0.dist-info/RECORD": "".join(f"torch/{name},,\n" for name in names),
            "bin/torchrun": "#!/bin/sh\n",
        },
    )
    for name in ("libtorch_python.so", "libtorch_global_deps.so", "libjitbackend_test.so", "libgomp.so.1"):
        library_that_needs(root / torch / "lib" / name, rpath="$ORIGIN")
    for name in ("libtorch_cpu.so", "libtorch_cuda.so"):
        library_that_needs(root / torch / "lib" / name, "libstdc++.so.6", rpath=NVIDIA)
    library_that_needs(root / torch / "_C.so", "libtorch_python.so", rpath="$ORIGIN/lib")
    return root


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path)


def _files(tree: Path) -> set[str]:
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if path.is_symlink() or path.is_file()}


def test_libraries_that_are_packages_of_the_foundation_are_not_taken_from_the_wheel(wheel: Path) -> None:
    library_that_needs(wheel / SITE / "torch/lib/libgfortran.so.5", rpath="$ORIGIN")
    split_libtorch(wheel, context("libtorch"))
    assert not _files(wheel) & {"lib/libgfortran.so.5", "lib/libgomp.so.1"}


def test_libtorch_is_what_cxx_needs_in_the_prefixs_own_folders(wheel: Path) -> None:
    split_libtorch(wheel, context("libtorch"))
    assert _files(wheel) == {
        "include/c10/c10.h",
        "include/torch/torch.h",
        "include/torch/vendored/fmt/format.h",
        "lib/libtorch_cpu.so",
        "lib/libtorch_cuda.so",
        "lib/libtorch_global_deps.so",
        "share/cmake/ATen/ATenConfig.cmake",
        "share/cmake/Caffe2/Caffe2Config.cmake",
        "share/cmake/Torch/TorchConfig.cmake",
    }
    assert "include/torch/vendored)" in (wheel / "share/cmake/Torch/TorchConfig.cmake").read_text()


def test_libraries_find_from_lib_what_they_found_from_the_module_folder(wheel: Path) -> None:
    split_libtorch(wheel, context("libtorch"))
    rpaths = read_elf_file(wheel / "lib/libtorch_cpu.so").rpaths
    assert rpaths == ("$ORIGIN", "$ORIGIN/python3.11/site-packages/nvidia/cublas/lib")


def test_pytorch_links_to_what_libtorch_owns(wheel: Path) -> None:
    split_pytorch(wheel, context("pytorch"))
    torch = wheel / SITE / "torch"
    assert (torch / "lib/libtorch_cpu.so").readlink().as_posix() == "../../../../libtorch_cpu.so"
    assert (torch / "lib/libtorch_cuda.so").readlink().as_posix() == "../../../../libtorch_cuda.so"
    assert (torch / "include/c10").readlink().as_posix() == "../../../../../include/c10"
    assert (torch / "include/fmt").readlink().as_posix() == "../../../../../include/torch/vendored/fmt"
    assert (torch / "share/cmake/Torch").readlink().as_posix() == "../../../../../../share/cmake/Torch"
    assert not (torch / "include/google").exists()
    assert not (torch / "lib/libgomp.so.1").is_symlink()
    assert (wheel / "lib/libtorch_python.so").is_file()
    assert (wheel / "bin/torchrun").is_file()


def test_modules_find_libraries_in_lib_itself(wheel: Path) -> None:
    split_pytorch(wheel, context("pytorch"))
    assert read_elf_file(wheel / SITE / "torch/_C.so").rpaths == ("$ORIGIN/../../..",)
    assert read_elf_file(wheel / SITE / "torch/lib/libtorch_global_deps.so").rpaths == ("$ORIGIN/../../../..",)


def test_pytorch_works_from_what_the_row_leaves_packed(wheel: Path) -> None:
    for name in ("lib/libtorch_cpu.so", "lib/libtorch_cuda.so", "include/fmt/format.h", "include/c10/c10.h"):
        (wheel / SITE / "torch" / name).unlink()
    for name in ("fmt", "c10"):
        (wheel / SITE / "torch/include" / name).rmdir()
    for path in sorted((wheel / SITE / "torch").glob("include/*/**/*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for path in (wheel / SITE / "torch/include").iterdir():
        path.rmdir()
    for path in sorted((wheel / SITE / "torch/share").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    split_pytorch(wheel, context("pytorch"))
    assert (wheel / SITE / "torch/lib/libtorch_cuda.so").is_symlink()
    assert (wheel / SITE / "torch/include/fmt").is_symlink()


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        ("torch/lib/libtorch_cpu.so", r"expected torch/lib/libtorch_cpu\.so"),
        ("torch/share/cmake/Torch/TorchConfig.cmake", r"TorchConfig\.cmake no longer has the line"),
    ],
)
def test_a_wheel_of_another_shape_is_an_error(wheel: Path, gone: str, expected: str) -> None:
    path = wheel / SITE / gone
    path.write_text("") if path.suffix == ".cmake" else path.unlink()
    with pytest.raises(FoundationError, match=expected):
        split_libtorch(wheel, context("libtorch"))


def test_a_missing_python_library_is_an_error(wheel: Path) -> None:
    (wheel / SITE / "torch/lib/libtorch_python.so").unlink()
    with pytest.raises(FoundationError, match=r"expected torch/lib/libtorch_python\.so"):
        split_pytorch(wheel, context("pytorch"))
