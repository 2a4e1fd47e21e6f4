# SPDX-License-Identifier: BSD-3-Clause
"""The variants of one version as a table: Python by PyTorch where builds differ by them, else by the keys they have."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from channel_tools.page.model import Build

_FIRST_KEYS = ("python", "pytorch")
_NONE = "-"


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantTable:
    """Rows by the values of ``row_key``, columns by those of ``column_key`` (empty: there is one column).

    A cell holds builds, each with what tells it from the others of its cell.
    """

    row_key: str
    column_key: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[tuple[str, Build], ...]]


def variant_table(builds: Sequence[Build]) -> VariantTable | None:
    """The table of builds of one version, without superseded ones; None when no build has recorded a variant."""
    shown = [build for build in builds if build.row.origin.variant and not build.earlier]
    keys = _keys(shown)
    if not keys:
        return None
    row_key, column_key, rest = keys[0], keys[1] if len(keys) > 1 else "", keys[2:]
    cells: defaultdict[tuple[str, str], list[tuple[str, Build]]] = defaultdict(list)
    for build in shown:
        label = ", ".join(f"{key} {_value(build, key)}" for key in rest) or build.build
        cells[_value(build, row_key), _value(build, column_key)].append((label, build))
    return VariantTable(
        row_key=row_key,
        column_key=column_key,
        rows=tuple(sorted({row for row, _column in cells})),
        columns=tuple(sorted({column for _row, column in cells})),
        cells={place: tuple(found) for place, found in cells.items()},
    )


def _keys(builds: Sequence[Build]) -> list[str]:
    """Python and PyTorch, where they are there, and then all keys whose values differ among the builds."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for build in builds:
        for key in build.row.origin.variant or {}:
            values[key] |= {_value(other, key) for other in builds}
    first = [key for key in _FIRST_KEYS if key in values]
    return first + sorted(key for key, found in values.items() if len(found) > 1 and key not in first)


def variant_value(build: Build, key: str) -> str:
    """The value of a variant key, "" where the build has none; ``3.11.* *_cpython`` is 3.11 to people."""
    value = (build.row.origin.variant or {}).get(key, "")
    return value.split(" ")[0].removesuffix(".*")


def _value(build: Build, key: str) -> str:
    return (variant_value(build, key) or _NONE) if key else ""
