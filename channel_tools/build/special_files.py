# SPDX-License-Identifier: BSD-3-Clause
"""Files in a build's prefix that are none of what a package holds: named pipes, sockets, devices.

py-rattler-build 0.73 opens every file that it packs, and at a named pipe that is for ever. It says nothing between the
end of the script and the packing, and holds the interpreter lock meanwhile, so the process that supervises it looks.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from channel_tools.system.errors import BuildError
from channel_tools.system.files import walk_entries
from channel_tools.system.workers import descendants, processor_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIXES = "bld/*/host_env*"
_KINDS = {
    stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device",
}  # fmt: skip


def special_file(output: Path) -> str:
    """What is wrong with the first such file in the prefix of the engine's ``output`` folder; "" for none."""
    try:
        return min(_special_files(output), default="")
    except FileNotFoundError:  # the engine goes on, and clears up
        return ""


def _special_files(output: Path) -> Iterator[str]:
    for prefix in output.glob(_PREFIXES):
        for entry in walk_entries(prefix):
            kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
            if kind is not None:
                yield f"{Path(entry.path).relative_to(prefix)} is a {kind}; a package holds files, folders and links"


class StuckEngine:
    """Told once a second what runs, finds the engine waiting for ever at a file that it cannot pack."""

    def __init__(self, output: Path, *, processes: int = 1) -> None:
        """``output`` is the engine's, which runs in the last of so many ``processes``, each started by the other."""
        self._output, self._processes = output, processes
        self._last: tuple[int, ...] = ()

    def check(self, supervisor: int) -> None:
        """Raise BuildError naming the file where the engine alone is left of a process's descendants, and stands still.

        While a script runs there are others, and a pipe may be one that it takes away again.
        """
        last, self._last = self._last, ()
        processes = descendants(supervisor)
        if len(processes) != self._processes:
            return
        self._last = (*processes, *map(processor_ticks, processes))
        if self._last == last and (fault := special_file(self._output)):
            raise BuildError(fault)
