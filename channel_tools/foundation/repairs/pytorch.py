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

from channel_tools.foundation.model import PREFIX_PLACEHOLDER
from channel_tools.foundation.repairs.elf import LIB, dynamic_elf_files, edit_elf, rpath_of, write_rpaths
from channel_tools.foundation.repairs.layout import files_in, relative_to_tree, relayout, step_error
from channel_tools.foundation.repairs.scripts import Setting, write_activation, write_program
from channel_tools.foundation.repairs.wheels import own_folders, site_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_DEBIAN_MODULES = "usr/lib/python3/dist-packages"
_BLAS = ("libblas.so.3", "liblapack.so.3")
_OPENBLAS = "libopenblas.so.0"
# in torch/distributed: the calls that make a store with libuv whatever the environment says, by an option of each
_STORE_OPTIONS: Mapping[str, str] = {
    "rendezvous.py": "is_master=False,",
    "elastic/rendezvous/c10d_rendezvous_backend.py": "multi_tenant=True,",
    "elastic/rendezvous/dynamic_rendezvous.py": "multi_tenant=True,",
    "elastic/rendezvous/static_tcp_rendezvous.py": "multi_tenant=True,",
}
_TORCHRUN = """\
#!{python}
import sys

from torch.distributed.run import main

if __name__ == "__main__":
    sys.exit(main())
"""
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


def use_openblas(tree: Path, context: RepairContext) -> None:
    """Have Debian's libtorch ask for OpenBLAS under its own name; what it asks for, Debian's alternatives choose."""
    library = next((tree / LIB).glob("libtorch_cpu.so.*.*.*"), None)
    if library is None:
        raise step_error(context, "expected lib/libtorch_cpu.so.* in the package")
    edit_elf([word for name in _BLAS for word in ("--replace-needed", name, _OPENBLAS)], [library])


def place_python_modules(tree: Path, context: RepairContext) -> None:
    """Move Debian's Python modules to the folder of the foundation's Python; ``native`` does the rest."""
    if not (tree / _DEBIAN_MODULES / "torch").is_dir():
        raise step_error(context, f"expected {_DEBIAN_MODULES}/torch")
    modules = PurePosixPath("usr", site_folder(context))

    def new_path(path: PurePosixPath) -> PurePosixPath:
        return modules / path.relative_to(_DEBIAN_MODULES) if path.is_relative_to(_DEBIAN_MODULES) else path

    relayout(tree, context, new_path)


def finish_pytorch(tree: Path, context: RepairContext) -> None:
    """Give Debian's PyTorch what a wheel has beside its modules: torchrun, links to CMake files, and a setting.

    It is built without libuv, which torchrun and its ranks ask for in spite of USE_LIBUV, others unless that is 0.
    """
    torch = tree / site_folder(context) / "torch"
    stated = [path.name for path in torch.parent.glob("torch-*.egg-info")]
    if stated != [f"torch-{context.version}+debian.egg-info"]:
        raise step_error(context, f"expected torch-{context.version}+debian.egg-info, found {stated or 'none'}")
    _place_loaded_by_path(tree, torch, context)
    for name, option in _STORE_OPTIONS.items():
        _ask_no_libuv(torch / "distributed" / name, option, context)
    for name in _CMAKE_PACKAGES:
        _link(torch / "share" / "cmake" / name, f"lib/cmake/{name}", tree)
    _link(torch / "include" / "pybind11", "include/pybind11", tree)
    _link(tree / LIB / _PYTHON_LIBRARY, f"lib/{_PYTHON_LIBRARY}.{context.version.rpartition('.')[0]}", tree)
    write_program(
        tree / "bin" / "torchrun", _TORCHRUN.format(python=f"{PREFIX_PLACEHOLDER}/bin/python{context.python_version}")
    )
    setting = Setting(name="USE_LIBUV", value="0", only_if_unset=("USE_LIBUV",))
    write_activation(tree, context.entry.name, [setting], reason="This PyTorch is built without libuv.")


def _ask_no_libuv(path: Path, option: str, context: RepairContext) -> None:
    """Have a call that has this option make its store without libuv."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text.count(option) != 1:
        raise step_error(context, f"expected one call with {option!r} in {path.name}, found {text.count(option)}")
    path.write_text(text.replace(option, f"{option} use_libuv=False,"), encoding="utf-8")


def _place_loaded_by_path(tree: Path, torch: Path, context: RepairContext) -> None:
    link = torch / "lib" / _LOADED_BY_PATH
    libraries = sorted((tree / LIB).glob(f"{_LOADED_BY_PATH}*"))
    files = [path for path in libraries if not path.is_symlink()]
    if len(files) != 1 or not link.is_symlink():
        raise step_error(context, f"expected one lib/{_LOADED_BY_PATH}.*, and a link to it in torch/lib")
    link.unlink()
    for path in libraries:
        path.rename(link) if path in files else path.unlink()
    write_rpaths([(link, rpath_of([LIB], str(relative_to_tree(link, tree))))])


STEPS: dict[str, Repair] = {
    "use_openblas": use_openblas,
    "place_python_modules": place_python_modules,
    "finish_pytorch": finish_pytorch,
    "split_libtorch": split_libtorch,
    "split_pytorch": split_pytorch,
}
