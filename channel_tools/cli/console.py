# SPDX-License-Identifier: BSD-3-Clause
"""How results and errors look: results on stdout, everything else on stderr.

A terminal gets rich's tables (NO_COLOR and non-UTF-8 terminals are rich's care); a pipe gets plain aligned lines that
a program can read, never cut to a width. Rich is imported only where something is drawn: ``--help`` stays quick.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.errors import ChannelToolsError


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    """One line of a result on stdout."""
    sys.stdout.write(text + "\n")


def print_note(message: str) -> None:
    """One line on stderr."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """A result table: drawn on a terminal, aligned plain text elsewhere."""
    if sys.stdout.isatty():
        _draw_table(columns, rows, title)
        return
    if title:
        print_line(title)
    table = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_error(error: ChannelToolsError) -> None:
    """The one message that a failed command ends with, on stderr."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), str(error)))
    if error.hint:
        console.print(Text.assemble(("hint: ", "bold"), error.hint))


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*columns, title=title, title_justify="left", title_style="bold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, highlight=False).print(table)
