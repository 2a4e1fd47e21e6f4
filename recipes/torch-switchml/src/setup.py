# SPDX-License-Identifier: BSD-3-Clause
"""Builds the extension against the PyTorch that is installed.

PyTorch's own build helper knows its headers, flags and C++ standard, both in
a wheel and where a distribution splits them; everything else is in
pyproject.toml.
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent


def switchml_include_dir() -> str:
    """The folder of switchml.h: SWITCHML_INCLUDE_DIR, else this environment's."""
    named = os.environ.get("SWITCHML_INCLUDE_DIR")
    folder = Path(named) if named else Path(sys.prefix, "include")
    if not (folder / "switchml.h").is_file():
        sys.exit(
            f"setup.py: no switchml.h in {folder}: install libswitchml in this environment "
            "or name its folder in SWITCHML_INCLUDE_DIR"
        )
    return str(folder)


def join_sources() -> str:
    """One translation unit of all sources: PyTorch's headers take far longer to parse than these to compile."""
    unit = ROOT / "build" / "torch_switchml.cpp"
    unit.parent.mkdir(exist_ok=True)
    names = sorted(path.name for path in (ROOT / "csrc").glob("*.cpp"))
    unit.write_text("".join(f'#include "../csrc/{name}"\n' for name in names), encoding="utf-8")
    return str(unit.relative_to(ROOT))


def make_extension() -> CppExtension:
    """The extension module, without a build path in it or an absolute one in its runpath.

    Beside it, as installed, lie PyTorch's libraries (a wheel's layout) and the
    environment's lib folder, where libswitchml.so.1 is looked for at run time.
    """
    return CppExtension(
        name="torch_switchml._C",
        sources=[join_sources()],
        include_dirs=[switchml_include_dir()],
        extra_compile_args=[
            "-O1",  # compiles in three quarters of the time; the sums of host_sum.cpp are vectors by themselves
            "-g0",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",  # PyTorch's headers name what they do not use
            "-fvisibility=hidden",
            f"-ffile-prefix-map={ROOT}=torch-switchml",
            f"-ffile-prefix-map={sys.prefix}=prefix",
        ],
        extra_link_args=["-Wl,-rpath,$ORIGIN/../torch/lib", "-Wl,-rpath,$ORIGIN/../../.."],
        libraries=["dl"],
    )


setup(ext_modules=[make_extension()], cmdclass={"build_ext": BuildExtension})
