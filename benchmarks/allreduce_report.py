# SPDX-License-Identifier: BSD-3-Clause
"""The figures of the allreduce benchmark: as JSON and as a table."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from channel_tools.validate.model import Spread

_KIB = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One size in one setting, seconds of a call; ``load`` is the machine's average over the minute before the end."""

    setting: str
    size_bytes: int
    switchml_s: Spread
    gloo_s: Spread
    load: float

    @property
    def ratio(self) -> float:
        """How many times as fast as gloo."""
        return self.gloo_s.median / self.switchml_s.median


def write_report(rows: Sequence[Measured], folder: Path) -> str:
    """Write allreduce.json and .md; the table."""
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
    }
    document = {"schema": 1, **about, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]}
    table = "\n".join(
        [
            f"{about['date']}, {about['cores']} cores, load average {os.getloadavg()[0]:.1f} at the end.\n",
            "| ranks and hosts | size | SwitchML (quartiles) | gloo (quartiles) | times gloo | load |",
            "|---|---:|---:|---:|---:|---:|",
            *map(_table_row, rows),
        ]
    )
    (folder / "allreduce.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "allreduce.md").write_text(table + "\n", encoding="utf-8")
    return table


def _table_row(row: Measured) -> str:
    cells = (
        row.setting,
        format_size(row.size_bytes),
        format_spread(row.switchml_s),
        format_spread(row.gloo_s),
        f"{row.ratio:.2f}",
        f"{row.load:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def format_size(size_bytes: int) -> str:
    """In words: ``16 KiB``."""
    for unit, name in ((_KIB**2, "MiB"), (_KIB, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def format_spread(spread: Spread) -> str:
    """Of seconds, as median and quartiles: ``1.2 (1.1 to 1.4) ms``."""
    scale, unit = (1e3, "ms") if spread.median >= 1e-3 else (1e6, "µs")  # noqa: PLR2004 - a millisecond
    lower, median, upper = (f"{seconds * scale:.3g}" for seconds in (spread.lower, spread.median, spread.upper))
    return f"{median} ({lower} to {upper}) {unit}"
