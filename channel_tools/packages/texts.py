# SPDX-License-Identifier: BSD-3-Clause
"""Which text files must not name the host, and what in them does.

Judged are the files that steer builds and programs (.pc, CMake packages, programs, activation scripts). Text that only
mentions a path, like documentation or a module that probes hosts for a living, is not.
"""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MARKED = (".pc", ".cmake")
_STEERING = ("etc/conda/",)
_PROGRAMS = ("bin/", "sbin/", "libexec/")
# CMake's own modules and Find modules search a host for what a site brings; that is what they are for
_PROBES = (
    "*/share/cmake*/Modules/*",
    "share/cmake*/Modules/*",
    "*/Find*.cmake",
    "*/FindCUDA/*",
    "*/Modules_CUDA_fix/*",
)
_SHEBANG = re.compile(r"#!\s*(\S+)")
SHELLS = frozenset({"/bin/sh", "/bin/bash", "/usr/bin/env"})
_PREFIX_SHEBANG = re.compile(r"/opt/anaconda1anaconda2anaconda3\S*/bin/[\w.+-]+$")
_HOST_PATH = re.compile(r"(?:(?<=-[IL])|(?<![\w.}$/%]))/(?:usr|build|home|root|tmp|var/tmp|opt)/[^\s\"'();:,<>\\]*")
# what prefix-map options write in place of build folders, and the ways of programs that people pass
_HARMLESS = re.compile(r"/usr/local/src/conda|/usr/bin/env$|/opt/anaconda1anaconda2")
_COMMENT = re.compile(r"^\s*(?:#|//|URL:|Description:)")


def is_judged(name: str, head: bytes, *, executable: bool) -> bool:
    """Whether a file of a package is one whose text the rule reads."""
    if b"\0" in head[:4096] or any(fnmatch.fnmatch(name, probe) for probe in _PROBES):
        return False
    is_script = head.startswith(b"#!") and is_program(name, executable=executable)
    return is_script or name.endswith(_MARKED) or name.startswith(_STEERING)


def leftover_paths(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and host paths that a judged text names; comments do not count, the shebang does."""
    lines = text.splitlines()
    if lines and (shebang := _SHEBANG.match(lines[0])) and not _is_good_interpreter(shebang[1]):
        yield 1, f"the interpreter {shebang[1]}"
    if not (name.endswith(_MARKED) or name.startswith((*_STEERING, *_PROGRAMS))):
        return
    yield from host_paths(lines)


def host_paths(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Line numbers and absolute paths of a host that lines name outside of comments."""
    for number, line in enumerate(lines, start=1):
        if _COMMENT.match(line):
            continue
        for found in _HOST_PATH.findall(line):
            if not _HARMLESS.match(found):
                yield number, found


def locates_itself(name: str) -> bool:
    """Whether a file is one that others find libraries by: .pc, CMake packages, -config programs."""
    if name.endswith(_MARKED):
        return not any(fnmatch.fnmatch(name, probe) for probe in _PROBES)
    return name.startswith(_PROGRAMS) and name.endswith("-config")


def is_program(name: str, *, executable: bool) -> bool:
    """Whether a file that begins with ``#!`` is run by its name."""
    return executable or name.startswith(_PROGRAMS)


def _is_good_interpreter(path: str) -> bool:
    return path in SHELLS or _PREFIX_SHEBANG.match(path) is not None
