# SPDX-License-Identifier: BSD-3-Clause
"""Finds files in a build's prefix that a package cannot contain: named pipes, sockets, devices, names not in UTF-8.

py-rattler-build 0.73 opens every file that it packs, and hangs at a named pipe. It reports nothing between the end of
the script and the packing, and holds the interpreter lock meanwhile, so the process that supervises it checks.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from channel_tools.system.errors import BuildError
from channel_tools.system.files import walk_entries
from channel_tools.system.workers import descendants, processor_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PREFIXES = "bld/*/host_env*"
_KINDS = {
    stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device",
}  # fmt: skip


def special_file(output: Path) -> str:
    """Describe the first such file in the prefix of the engine's ``output`` folder; "" if there is none."""
    try:
        return min(_special_files(output), default="")
    except FileNotFoundError:  # the engine continues, and removes files
        return ""


def _special_files(output: Path) -> Iterator[str]:
    for prefix in output.glob(_PREFIXES):
        for entry in walk_entries(prefix):
            kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
            if kind is not None:
                yield f"{shown_name(entry.path, prefix)} is a {kind}; packages have only files, folders and links"
            elif not entry.path.isascii() and shown_name(entry.path, prefix) != os.path.relpath(entry.path, prefix):
                yield f"{shown_name(entry.path, prefix)} has a name that is not UTF-8, which a package cannot list"


def shown_name(path: str | Path, prefix: Path) -> str:
    """The path of a file below the prefix as text that can be written anywhere: bytes that are not UTF-8 as escapes."""
    return os.fsencode(os.path.relpath(path, prefix)).decode("utf-8", "backslashreplace")


class StuckEngine:
    """Detects that the engine hangs at a file that it cannot pack; ``check`` is called once a second."""

    def __init__(self, output: Path) -> None:
        """``output`` is the folder of the engine."""
        self._output = output
        self._last: tuple[int, ...] = ()

    def check(self, supervisor: int) -> None:
        """Raise BuildError naming the file if only the engine is left of a process's descendants and it is idle.

        While a script runs, there are other processes, and a pipe may be one that the script removes again.
        """
        last, self._last = self._last, ()
        processes = descendants(supervisor)
        if len(processes) != 1:
            return
        self._last = (processes[0], processor_ticks(processes[0]))
        if self._last == last and (fault := special_file(self._output)):
            raise BuildError(fault)
