# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.pytorch import (
    finish_pytorch,
    place_python_modules,
    split_libtorch,
    split_pytorch,
    use_openblas,
)
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


DEBIAN = "usr/lib/python3/dist-packages"
STORES = {
    "rendezvous.py": "is_master=False,",
    **{
        f"elastic/rendezvous/{name}.py": "multi_tenant=True,"
        for name in ("c10d_rendezvous_backend", "dynamic_rendezvous", "static_tcp_rendezvous")
    },
}


def make_debian_modules(root: Path) -> Path:
    """Debian's PyTorch, in small, as it is unpacked."""
    make_tree(
        root,
        {
            f"{DEBIAN}/torch/__init__.py": "",
            f"{DEBIAN}/torch/include/c10": "-> ../../../../../include/c10",
            f"{DEBIAN}/torch/lib/libc10.so": "-> ../../../../x86_64-linux-gnu/libc10.so.2.6",
        },
    )
    return root


def make_debian_pytorch(root: Path, version: str = "1.2.3") -> Path:
    """The same, after ``native``."""
    torch = f"{SITE}/torch"
    make_tree(
        root,
        {
            f"{SITE}/torch-{version}+debian.egg-info/PKG-INFO": "",
            f"{torch}/lib/libtorch_global_deps.so": "-> ../../../../libtorch_global_deps.so.1.2",
            "lib/libtorch_global_deps.so.1.2": "-> libtorch_global_deps.so.1.2.3",
            "lib/libtorch_python.so.1.2.3": "python",
            **{f"{torch}/distributed/{name}": f"store({option})\n" for name, option in STORES.items()},
        },
    )
    library_that_needs(root / "lib" / "libtorch_global_deps.so.1.2.3", "libstdc++.so.6")
    return root


def make_debian_libtorch(root: Path) -> Path:
    """A library that asks for what Debian's alternatives choose."""
    library_that_needs(root / "lib" / "libtorch_cpu.so.1.2.3", "libblas.so.3")
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


def test_debians_modules_are_where_the_foundations_python_looks(tmp_path: Path) -> None:
    place_python_modules(make_debian_modules(tmp_path), context("pytorch"))
    torch = f"usr/{SITE}/torch"
    assert _files(tmp_path) == {f"{torch}/__init__.py", f"{torch}/include/c10", f"{torch}/lib/libc10.so"}
    assert (tmp_path / torch / "include/c10").readlink().as_posix() == "../../../../../include/c10"
    with pytest.raises(FoundationError, match="expected usr/lib/python3/dist-packages/torch"):
        place_python_modules(tmp_path, context("pytorch"))


def test_debians_pytorch_has_what_a_wheel_has(tmp_path: Path) -> None:
    torch = make_debian_pytorch(tmp_path) / SITE / "torch"
    finish_pytorch(tmp_path, context("pytorch"))
    loaded = torch / "lib" / "libtorch_global_deps.so"
    assert not loaded.is_symlink()
    assert read_elf_file(loaded).rpaths == ("$ORIGIN/../../../..",)
    assert not list((tmp_path / "lib").glob("libtorch_global_deps*"))
    assert (tmp_path / "lib/libtorch_python.so").readlink().as_posix() == "libtorch_python.so.1.2"
    assert (torch / "share/cmake/Torch").readlink().as_posix() == "../../../../../cmake/Torch"
    assert (torch / "include/pybind11").readlink().as_posix() == "../../../../../include/pybind11"
    for name, option in STORES.items():
        assert (torch / "distributed" / name).read_text() == f"store({option} use_libuv=False,)\n"
    assert (tmp_path / "bin/torchrun").read_text().startswith(f"#!{PREFIX_PLACEHOLDER}/bin/python3.11\n")
    assert 'export USE_LIBUV="0"' in (tmp_path / "etc/conda/activate.d/activate-pytorch.sh").read_text()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("version", r"expected torch-1\.2\.3\+debian\.egg-info, found \['torch-1\.2\.4"),
        ("library", "expected one lib/libtorch_global_deps"),
        ("source", "expected one call with 'multi_tenant=True,' in static_tcp_rendezvous.py, found 0"),
    ],
)
def test_a_changed_debian_pytorch_is_an_error(tmp_path: Path, changed: str, expected: str) -> None:
    make_debian_pytorch(tmp_path, "1.2.4" if changed == "version" else "1.2.3")
    if changed == "library":
        (tmp_path / "lib/libtorch_global_deps.so.1.2.3").unlink()
    if changed == "source":
        source = tmp_path / SITE / "torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py"
        source.write_text("store()\n")
    with pytest.raises(FoundationError, match=expected):
        finish_pytorch(tmp_path, context("pytorch"))


def test_debians_libtorch_asks_for_openblas_by_its_name(tmp_path: Path) -> None:
    use_openblas(make_debian_libtorch(tmp_path), context("libtorch"))
    needed = read_elf_file(tmp_path / "lib" / "libtorch_cpu.so.1.2.3").needed
    assert "libopenblas.so.0" in needed
    assert "libblas.so.3" not in needed
    (tmp_path / "lib" / "libtorch_cpu.so.1.2.3").unlink()
    with pytest.raises(FoundationError, match="expected lib/libtorch_cpu"):
        use_openblas(tmp_path, context("libtorch"))
