# SPDX-License-Identifier: BSD-3-Clause
"""What ``foundation list`` shows: each row of the table beside what was made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from channel_tools.foundation.record import FoundationRecord
    from channel_tools.foundation.table import FoundationTable

State = Literal["made", "not made"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundationRow:
    """One package of the table or of the record."""

    name: str
    state: State
    kind: Literal["deb", "wheel", "none"]
    version: str | None
    build: str | None
    subdir: str | None
    size_bytes: int | None
    taken: tuple[str, ...]
    """``name=version`` of what was taken, or without versions what would be."""


def list_foundation(table: FoundationTable, record: FoundationRecord | None) -> list[FoundationRow]:
    """A row per package, by name: those of the table, and those made of wheels that pip added to them."""
    recorded = {package.name: package for package in record.packages} if record else {}
    rows: list[FoundationRow] = []
    for name in sorted({entry.name for entry in table.entries} | recorded.keys()):
        entry, package = table.entry(name), recorded.get(name)
        sources = () if entry is None else (*entry.debs, *entry.wheels)
        kinds = {file.kind for file in package.taken} if package else set()
        rows.append(
            FoundationRow(
                name=name,
                state="not made" if package is None else "made",
                kind=next(iter(kinds), "deb" if entry and entry.debs else "wheel" if sources else "none"),
                version=package.version if package else entry.version if entry else None,
                build=package.build if package else None,
                subdir=package.subdir if package else None,
                size_bytes=package.size_bytes if package else None,
                taken=tuple(f"{file.name}={file.version}" for file in package.taken) if package else sources,
            )
        )
    return rows
