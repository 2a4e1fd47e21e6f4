# SPDX-License-Identifier: BSD-3-Clause
"""Small tables for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.table import FoundationTable, load_table

if TYPE_CHECKING:
    from pathlib import Path

HEADER = 'suite: bookworm\npython: "3.11"\nglibc: "2.36"\nconda_names: {typing-extensions: typing_extensions}\n'


def write_table(folder: Path, rows: str, *, name: str = "table.yaml", header: str = HEADER) -> Path:
    """A table file with ``rows`` (YAML, not indented) below ``packages``."""
    path = folder / name
    indented = "".join(f"  {line}\n" for line in rows.strip().splitlines())
    path.write_text(f"{header}packages:\n{indented}")
    return path


def make_table(folder: Path, rows: str) -> FoundationTable:
    """The table of ``rows``."""
    return load_table([write_table(folder, rows)])
