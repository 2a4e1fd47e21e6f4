# SPDX-License-Identifier: BSD-3-Clause
"""Builds ACCL's process group against the PyTorch and the libaccl that are installed.

Takes the place of upstream's setup.py, which names folders of its authors.
"""

import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent


def ask_pkg_config(option: str) -> list[str]:
    """What pkg-config answers about libaccl."""
    answer = subprocess.run(["pkg-config", option, "accl"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        sys.exit(f"setup.py: no libaccl: {answer.stderr.strip()}")
    return shlex.split(answer.stdout)


def make_extension() -> CppExtension:
    """The extension module, without a build path in it or an absolute one in its runpath."""
    return CppExtension(
        name="accl_process_group._c.ProcessGroupACCL",
        sources=["src/ProcessGroupACCL.cpp"],
        include_dirs=[
            str(ROOT / "include"),
            *(one.removeprefix("-I") for one in ask_pkg_config("--cflags-only-I")),
        ],
        extra_compile_args=[
            "-O2",
            "-g0",
            "-Wno-reorder",
            "-Wno-sign-compare",
            "-fvisibility=hidden",
            f"-ffile-prefix-map={ROOT}=torch-accl",
            f"-ffile-prefix-map={sys.prefix}=prefix",
        ],
        extra_link_args=["-Wl,-rpath,$ORIGIN/../../torch/lib", "-Wl,-rpath,$ORIGIN/../../../.."],
        library_dirs=[str(Path(sys.prefix, "lib"))],
        libraries=["accl"],
    )


setup(ext_modules=[make_extension()], cmdclass={"build_ext": BuildExtension})
