# SPDX-License-Identifier: BSD-3-Clause
"""Builds the extension against the PyTorch that is installed and the MPI of an environment.

PyTorch's own build helper knows its headers, flags and C++ standard; everything else is in pyproject.toml.
"""

import os
import sys
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent
# The check of an MPI's CUDA support, which the patched PyTorch has as well: beside the sources in a build of the
# recipe, else where the repository has it.
SHARED = (ROOT / "shared", ROOT.parent.parent / "pytorch-cray-mpich-patched" / "src")


def mpi_prefix() -> Path:
    """Where include/mpi.h and lib/libmpi.so lie: MPI_HOME, else this environment."""
    prefix = Path(os.environ.get("MPI_HOME") or sys.prefix)
    if not (prefix / "include" / "mpi.h").is_file():
        sys.exit(f"setup.py: no include/mpi.h in {prefix}: install an MPI in this environment, or name it in MPI_HOME")
    return prefix


def mpi_library() -> str:
    """The library linked with, of an ABI of its own: ``mpi``, else MPI 5's standard ``mpi_abi`` by MPI_LIBRARY."""
    name = os.environ.get("MPI_LIBRARY") or "mpi"
    if name not in ("mpi", "mpi_abi"):
        sys.exit(f"setup.py: MPI_LIBRARY is {name}: expected mpi, or mpi_abi for MPI 5's standard ABI")
    return name


def shared_headers() -> Path:
    """The folder that has torch/csrc/distributed/c10d/MPICudaAware.hpp."""
    for folder in SHARED:
        if (folder / "torch" / "csrc" / "distributed" / "c10d" / "MPICudaAware.hpp").is_file():
            return folder
    sys.exit(f"setup.py: no MPICudaAware.hpp in {' or '.join(map(str, SHARED))}")


def join_sources() -> str:
    """One translation unit of all sources: PyTorch's headers take far longer to parse than these to compile."""
    unit = ROOT / "build" / "torch_mpi.cpp"
    unit.parent.mkdir(exist_ok=True)
    names = sorted(path.name for path in (ROOT / "csrc").glob("*.cpp"))
    unit.write_text("".join(f'#include "../csrc/{name}"\n' for name in names), encoding="utf-8")
    return str(unit.relative_to(ROOT))


def make_extension() -> CppExtension:
    """The extension module, without a build path in it or an absolute one in its runpath.

    Beside it, as installed, lie PyTorch's libraries (a wheel's layout) and the environment's lib folder with the MPI.
    """
    mpi, library = mpi_prefix(), mpi_library()
    return CppExtension(
        name="torch_mpi._C",
        sources=[join_sources()],
        include_dirs=[str(shared_headers()), str(mpi / "include")],
        libraries=["dl", "pthread"],  # of their own before glibc 2.34
        extra_compile_args=[
            "-O1",  # compiles in two thirds of the time, and the work is MPI's and of PyTorch's kernels
            "-ftree-vectorize",  # but for the loops of elements.cpp
            "-g0",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",  # PyTorch's headers name what they do not use
            "-Wno-cast-function-type",
            "-fvisibility=hidden",
            "-DOMPI_SKIP_MPICXX",
            "-DMPICH_SKIP_MPICXX",
            *(["-DMPI_ABI"] if library == "mpi_abi" else []),  # MPICH's header has both
            f"-ffile-prefix-map={ROOT}=torch-mpi",
            f"-ffile-prefix-map={sys.prefix}=prefix",
        ],
        extra_link_args=[
            # by its path: the environment's own MPI may come first in the linker's
            str(mpi / "lib" / f"lib{library}.so"),
            "-Wl,-rpath,$ORIGIN/../torch/lib",
            "-Wl,-rpath,$ORIGIN/../../..",
        ],
    )


def pytorch_requirement() -> str:
    """The minor version that is built against: c10d's C++ interface changes with each."""
    major, minor = torch.__version__.split(".")[:2]
    return f"torch=={major}.{minor}.*"


setup(ext_modules=[make_extension()], cmdclass={"build_ext": BuildExtension}, install_requires=[pytorch_requirement()])
