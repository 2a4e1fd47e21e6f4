# SPDX-License-Identifier: BSD-3-Clause
"""The slow device of torch-switchml's tests, compiled once for all tests and runs that have the same PyTorch."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from filelock import FileLock

from channel_tools.system.settings import find_cache
from tests.support.programs import program

SOURCE = Path(__file__).parents[2] / "recipes/torch-switchml/src/tests/device/slow_device.cpp"
VARIABLE = "SLOW_DEVICE_LIBRARY"
"""Tells the plugins' own tests where the library is."""


def slow_device_library(prefix: Path) -> Path:
    """The library for the PyTorch of the environment at ``prefix``; skips the test where no compiler is to be had."""
    compiler = program("g++")
    (torch,) = prefix.glob("lib/python3.*/site-packages/torch")
    stated = [SOURCE.read_bytes(), (torch / "version.py").read_bytes(), compiler.encode()]
    key = hashlib.sha256(b"\0".join(stated)).hexdigest()[:16]
    cache = find_cache(os.environ) / "tests"
    cache.mkdir(parents=True, exist_ok=True)
    library = cache / f"slow-device-{key}.so"
    with FileLock(cache / "slow-device.lock"):
        if not library.is_file():
            made = library.with_suffix(".new")
            headers = [f"-isystem{folder}" for folder in (torch / "include", prefix / "include")]
            libraries = [f"-L{torch / 'lib'}", f"-L{prefix / 'lib'}", "-ltorch_cpu", "-lc10"]
            flags = ("-std=c++20", "-O0", "-shared", "-fPIC", "-pthread", "-Wall", "-Wextra", "-Wno-unused-parameter")
            subprocess.run([compiler, *flags, "-Werror", *headers, "-o", made, SOURCE, *libraries], check=True)
            made.rename(library)
    return library
