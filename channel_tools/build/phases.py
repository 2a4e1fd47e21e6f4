# SPDX-License-Identifier: BSD-3-Clause
"""What a build is doing, by the end of its log: rattler-build's own lines, and the counts of ninja and make.

For people only: a log that has other lines shows no phase, and nothing depends on one.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_BYTES = 1 << 16
_STARTS = (
    ("sources", re.compile(rb"^(?:Fetching source|Copied \d+ files)", re.MULTILINE)),
    ("environment", re.compile(rb"^  Platform:", re.MULTILINE)),
    ("compile", re.compile(rb"Successfully updated the host environment", re.MULTILINE)),
    ("package", re.compile(rb"^Copying done!", re.MULTILINE)),
    ("tests", re.compile(rb"^Collecting tests", re.MULTILINE)),
)
"""The phases and the lines that begin them; the one whose line is the last is the present one."""
_NINJA = re.compile(rb"\[(\d+)/(\d+)\]")
_MAKE = re.compile(rb"^\[ *(\d+)%\]", re.MULTILINE)


def phase_of(log: Path) -> str:
    """``sources``, ``environment``, ``compile 12 of 345``, ``package`` or ``tests``; "" if the log does not say."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES)
    except OSError:
        return ""
    places = [(matches[-1].start(), name) for name, start in _STARTS if (matches := list(start.finditer(tail)))]
    position, phase = max(places, default=(0, ""))
    counted = tail[position:]
    if phase in {"", "compile"}:
        if steps := _NINJA.findall(counted):
            done, total = (int(number) for number in steps[-1])
            return f"compile {done} of {total}"
        if shares := _MAKE.findall(counted):
            return f"compile {int(shares[-1])} %"
    return phase
