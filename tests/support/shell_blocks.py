# SPDX-License-Identifier: BSD-3-Clause
"""The indented blocks of a document, which are what its reader types: the one parser of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_INDENT = "    "
_NAME = re.compile(r"<!-- heavy: (.+) -->")


@dataclass(frozen=True, kw_only=True)
class ShellBlock:
    """Lines to type, without their indentation; ``heavy`` says why they take long, "" if they do not."""

    heading: str
    heavy: str
    text: str


def shell_blocks(document: str) -> Iterator[ShellBlock]:
    """Every indented block, in order; ``<!-- heavy: REASON -->`` before one, on a line of its own, names it heavy."""
    heading, heavy = "", ""
    lines: list[str] = []
    for line in [*document.splitlines(), "end"]:
        if line.startswith(_INDENT) or (lines and not line):
            lines.append(line.removeprefix(_INDENT))
            continue
        if lines:
            yield ShellBlock(heading=heading, heavy=heavy, text="\n".join(lines).rstrip("\n") + "\n")
            lines, heavy = [], ""
        if found := _NAME.fullmatch(line):
            heavy = found[1]
        elif line.startswith("#"):
            heading = line.lstrip("# ")
