# SPDX-License-Identifier: BSD-3-Clause
"""Progress on stderr: bars on a terminal, plain lines in a log.

One live display serves all steps of a command, also when steps overlap; it is taken down when the command ends.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from channel_tools.cli.console import print_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from channel_tools.progress import Progress, Task, Unit

_PLAIN_INTERVAL_S = 10.0
_KILO = 1000


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """The progress display of one command, for as long as the block runs."""
    if not sys.stderr.isatty():
        yield _LineProgress()
        return
    with _terminal_bars() as bars:
        yield _BarProgress(bars)


def _terminal_bars() -> Bars:
    """Rich's display; it takes longer to import than a small command to run, so only terminals pay for it."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=Console(file=sys.stderr, highlight=False),
        transient=True,
    )


def format_amount(amount: int, unit: Unit) -> str:
    """``12`` for items; bytes in the decimal units that download tools print."""
    if unit == "items":
        return str(amount)
    value = float(amount)
    for name in ("B", "kB", "MB"):
        if value < _KILO:
            return f"{value:.0f} {name}"
        value /= _KILO
    return f"{value:.2f} GB"


class _Amount:
    """What is done of a total, in words."""

    def __init__(self, total: int | None, unit: Unit) -> None:
        self.done = 0
        self._total = total
        self._unit: Unit = unit

    def __str__(self) -> str:
        done = format_amount(self.done, self._unit)
        return done if self._total is None else f"{done} of {format_amount(self._total, self._unit)}"


class _BarTask:
    def __init__(self, bars: Bars, task_id: TaskID, amount: _Amount) -> None:
        self._bars = bars
        self._task_id = task_id
        self._amount = amount
        self._lock = threading.Lock()

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        with self._lock:
            self._amount.done += amount
            text = str(self._amount)
        self._bars.update(self._task_id, advance=amount, amount=text)
        if detail is not None:
            self._bars.update(self._task_id, detail=detail)


class _BarProgress:
    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        amount = _Amount(total, unit)
        task_id = self._bars.add_task(description, total=total, amount=str(amount), detail="")
        try:
            yield _BarTask(self._bars, task_id, amount)
        finally:
            self._bars.remove_task(task_id)

    def note(self, message: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        self._bars.console.print(Text(message))


class _LineTask:
    """Says how far a step is every ten seconds."""

    def __init__(self, description: str, amount: _Amount) -> None:
        self._description = description
        self._amount = amount
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        now = time.monotonic()
        with self._lock:
            self._amount.done += amount
            if now - self._last < _PLAIN_INTERVAL_S:
                return
            self._last = now
        print_note(f"{self._description}: {self._amount}" + (f" ({detail})" if detail else ""))


class _LineProgress:
    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        started = time.monotonic()
        extent = "" if total is None else f" ({format_amount(total, unit)})"
        print_note(f"{description}{extent} ...")
        yield _LineTask(description, _Amount(total, unit))
        print_note(f"{description}: done in {time.monotonic() - started:.1f} s")

    def note(self, message: str) -> None:
        print_note(message)
