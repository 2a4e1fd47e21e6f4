# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's wheel split as conda-forge splits its build: ``libtorch`` for C++, ``pytorch`` for Python.

libtorch owns the libraries, headers and CMake files in the prefix's own lib/, include/ and share/; pytorch's module
folder links to them, so that torch.utils.cpp_extension and cmake_prefix_path find what they expect where they expect
it. Headers of other projects that the wheel carries lie apart, in include/torch/vendored: fmt and pybind11 may also be
packages of their own.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
import re
import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from channel_tools.foundation.repairs.elf import LIB, dynamic_elf_files, rpath_of, write_rpaths
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, step_error
from channel_tools.foundation.repairs.wheels import own_folders, site_folder

if TYPE_CHECKING:
    from channel_tools.foundation.model import Repair, RepairContext

VERSION = 1
"""Raised with each change of what a step here makes of a tree."""

# PyTorch's own headers, which C++ programs include by these names
_OWN_HEADERS = frozenset({"ATen", "c10", "caffe2", "tensorpipe", "torch"})
# protobuf's headers are of another version than the foundation's, and no header of PyTorch includes them
_UNUSED_HEADERS = frozenset({"google"})
_VENDORED = "include/torch/vendored"
_PYTHON_LIBRARY = "libtorch_python.so"
# loaded by path from the module folder, so it must lie there itself to find its libraries
_LOADED_BY_PATH = "libtorch_global_deps.so"
_TEST_LIBRARY = re.compile(r"lib(?:jitbackend_test|torchbind_test|backend_with_compiler|aoti_custom_ops)\.so")
# under their own names they are the foundation's packages; under names with a hash, the wheel's own. aarch64's has the
# second, for its OpenBLAS
_FOUNDATION_LIBRARIES = frozenset({"libgomp.so.1", "libgfortran.so.5"})
_CMAKE_PACKAGES = ("ATen", "Caffe2", "Torch")
_INCLUDE_LINE = "  ${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include)"
_VENDORED_LINE = "  ${TORCH_INSTALL_PREFIX}/include/torch/vendored)"


def split_libtorch(tree: Path, context: RepairContext) -> None:
    """Keep of PyTorch's wheel what C++ needs, in the prefix's own folders."""
    torch = tree / site_folder(context) / "torch"
    libraries = [path for path in sorted((torch / "lib").glob("lib*.so*")) if _is_cxx_library(path.name)]
    if "libtorch_cpu.so" not in {path.name for path in libraries}:
        raise step_error(context, "expected torch/lib/libtorch_cpu.so in the wheel")
    (tree / "include").mkdir()
    (tree / _VENDORED).parent.mkdir(parents=True)
    for path in sorted((torch / "include").iterdir()):
        _move_headers(path, tree)
    (tree / "share" / "cmake").mkdir(parents=True)
    for name in _CMAKE_PACKAGES:
        (torch / "share" / "cmake" / name).rename(tree / "share" / "cmake" / name)
    _add_vendored_headers(tree / "share" / "cmake" / "Torch" / "TorchConfig.cmake", context)
    _move_libraries(libraries, tree)
    shutil.rmtree(tree / LIB / f"python{context.python_version}")
    shutil.rmtree(tree / "bin", ignore_errors=True)


def split_pytorch(tree: Path, context: RepairContext) -> None:
    """Keep of PyTorch's wheel what Python needs, with relative links to what libtorch owns."""
    site = site_folder(context)
    torch = tree / site / "torch"
    names = _recorded_names(tree, site, context)
    for path in list(files_in(torch / "lib")):
        if path.name not in {_PYTHON_LIBRARY, _LOADED_BY_PATH}:
            path.unlink()
    if not (torch / "lib" / _PYTHON_LIBRARY).is_file() or not (torch / "lib" / _LOADED_BY_PATH).is_file():
        raise step_error(context, f"expected torch/lib/{_PYTHON_LIBRARY} and torch/lib/{_LOADED_BY_PATH} in the wheel")
    _move_libraries([torch / "lib" / _PYTHON_LIBRARY], tree)
    for folder in ("include", "share/cmake"):
        shutil.rmtree(torch / folder, ignore_errors=True)
    libraries = {name for name in names["lib"] if _is_cxx_library(name)} - {_LOADED_BY_PATH}
    for name in sorted({*libraries, _PYTHON_LIBRARY}):
        _link(torch / "lib" / name, f"lib/{name}", tree)
    for name in sorted(names["include"] - _UNUSED_HEADERS):
        _link(torch / "include" / name, f"include/{name}" if name in _OWN_HEADERS else f"{_VENDORED}/{name}", tree)
    for name in _CMAKE_PACKAGES:
        _link(torch / "share" / "cmake" / name, f"share/cmake/{name}", tree)
    _set_rpaths(tree)


def _is_cxx_library(name: str) -> bool:
    if not name.startswith("lib") or ".so" not in name:
        return False
    return not _TEST_LIBRARY.fullmatch(name) and name not in {_PYTHON_LIBRARY, *_FOUNDATION_LIBRARIES}


def _move_headers(path: Path, tree: Path) -> None:
    if path.name in _UNUSED_HEADERS:
        return
    if path.name == "torch":
        shutil.copytree(path, tree / "include" / "torch", dirs_exist_ok=True, copy_function=os.rename)
        return
    folder = tree / ("include" if path.name in _OWN_HEADERS else _VENDORED)
    folder.mkdir(parents=True, exist_ok=True)
    path.rename(folder / path.name)


def _add_vendored_headers(config: Path, context: RepairContext) -> None:
    text = config.read_text(encoding="utf-8")
    if text.count(_INCLUDE_LINE) != 1:
        raise step_error(context, f"TorchConfig.cmake no longer has the line {_INCLUDE_LINE.strip()!r} once")
    changed = text.replace(_INCLUDE_LINE, _INCLUDE_LINE.removesuffix(")") + "\n" + _VENDORED_LINE)
    config.write_text(changed, encoding="utf-8")


def _move_libraries(libraries: list[Path], tree: Path) -> None:
    """Move libraries to ``lib``; what their rpaths named from the module folder, they name from there."""
    rpaths: list[tuple[Path, str]] = []
    for path, info in dynamic_elf_files(tree):
        if path in libraries:
            old, new = relative_to_tree(path, tree), f"{LIB}/{path.name}"
            folders = [folder for folder in own_folders(str(old), info) if folder != str(old.parent)]
            rpaths.append((tree / new, rpath_of([LIB, *folders], new)))
    for path in libraries:
        path.rename(tree / LIB / path.name)
    write_rpaths(rpaths)


def _set_rpaths(tree: Path) -> None:
    """Everything in the module folder finds its libraries in ``lib`` itself, not through the links beside it."""
    rpaths: list[tuple[Path, str]] = []
    for path, info in dynamic_elf_files(tree):
        where = str(relative_to_tree(path, tree))
        if posixpath.dirname(where) != LIB:
            folders = [folder for folder in own_folders(where, info) if "/torch" not in folder]
            rpaths.append((path, rpath_of([LIB, *folders], where)))
    write_rpaths(rpaths)


def _recorded_names(tree: Path, site: str, context: RepairContext) -> dict[str, set[str]]:
    """What the wheel has in torch/lib and torch/include, by its RECORD: the row may leave it packed."""
    records = list((tree / site).glob("torch-*.dist-info/RECORD"))
    if len(records) != 1:
        raise step_error(context, f"expected one torch-*.dist-info/RECORD, found {len(records)}")
    names: dict[str, set[str]] = {"lib": set(), "include": set()}
    for row in csv.reader(io.StringIO(records[0].read_text(encoding="utf-8"))):
        parts = PurePosixPath(row[0]).parts
        if len(parts) >= 3 and parts[0] == "torch" and parts[1] in names:  # noqa: PLR2004 - torch/lib/name
            names[parts[1]].add(parts[2])
    return names


def _link(path: Path, target: str, tree: Path) -> None:
    """Make ``path`` a relative link to ``target`` in the prefix, which another package may own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = str(relative_to_tree(path, tree).parent)
    path.symlink_to(posixpath.relpath(target, folder))


STEPS: dict[str, Repair] = {
    "split_libtorch": split_libtorch,
    "split_pytorch": split_pytorch,
}
