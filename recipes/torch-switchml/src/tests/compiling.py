# SPDX-License-Identifier: BSD-3-Clause
"""C++ of the tests' own, compiled where it is used."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from filelock import FileLock


def compile_cpp(result: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Compile and link ``sources``, which include switchml.h, to ``result``; skips the test where no compiler is.

    Several become one translation unit, as in setup.py: their headers take longer to compile than they do.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    if compiler is None:
        pytest.skip(f"{result.name} is compiled for its tests: no C++ compiler")
    include = os.environ.get("SWITCHML_INCLUDE_DIR", str(Path(sys.prefix, "include")))
    if len(sources) > 1:
        unit = result.with_suffix(".cpp")
        unit.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
        sources = [unit]
    usual = ["-std=c++17", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{include}"]
    subprocess.run([compiler, *usual, *flags, *sources, "-o", result], check=True)
    return result


def compile_once(request: pytest.FixtureRequest, name: str, sources: Sequence[Path], *flags: str) -> Path:
    """As ``compile_cpp``, to a file of this name that all workers of a run share: the first that wants it compiles."""
    own: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    result = (own.parent if hasattr(request.config, "workerinput") else own) / name
    with FileLock(result.with_suffix(".lock")):
        return result if result.exists() else compile_cpp(result, sources, *flags)
