# SPDX-License-Identifier: BSD-3-Clause
"""How far a command is, on stderr: rich's bars on a terminal, a line every ten seconds elsewhere.

What steps are called may have parts that others wrote, so all of it is made harmless here. Rich is imported only where
bars are drawn: importing it takes longer than running a small command.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from channel_tools.cli.console import print_note
from channel_tools.system.harmless import harmless_line, harmless_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from channel_tools.system.progress import Progress, Task, Unit

_PLAIN_INTERVAL_S = 10.0
_FOLLOWED_INTERVAL_S = 1.0


@contextlib.contextmanager
def shown_progress() -> Iterator[Progress]:
    """The progress display of one command while the block runs."""
    if not sys.stderr.isatty():
        yield _LineProgress()
        return
    with _terminal_bars() as bars:
        yield _BarProgress(bars)


def _terminal_bars() -> Bars:
    """Rich's display, imported only for terminals: importing it takes longer than running a small command."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=Console(file=sys.stderr, highlight=False),
        transient=True,
    )


class _Amount:
    """The amount done of a total, as text."""

    def __init__(self, total: int | None, unit: Unit) -> None:
        self.done = 0
        self._total = total
        self._unit: Unit = unit

    def __str__(self) -> str:
        from channel_tools.system.progress import format_amount

        amount = format_amount(self.done, self._unit)
        return amount if self._total is None else f"{amount} of {format_amount(self._total, self._unit)}"


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
            self._bars.update(self._task_id, detail=harmless_line(detail))

    def show(self, state: str) -> None:
        self._bars.update(self._task_id, detail=harmless_line(state))

    def follow(self, state: Callable[[], str]) -> None:
        self._bars.update(self._task_id, detail=_Followed(state))


class _Followed:
    """What a step's function says, asked at most every second; it stands in a line that rich draws more often."""

    def __init__(self, state: Callable[[], str]) -> None:
        self._state = state
        self._line = ""
        self._until = 0.0

    def __str__(self) -> str:
        now = time.monotonic()
        if now >= self._until:
            self._line, self._until = harmless_line(self._state()), now + _FOLLOWED_INTERVAL_S
        return self._line


class _BarProgress:
    def __init__(self, bars: Bars) -> None:
        self._bars = bars

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        amount = _Amount(total, unit)
        task_id = self._bars.add_task(harmless_line(description), total=total, amount=str(amount), detail="")
        try:
            yield _BarTask(self._bars, task_id, amount)
        finally:
            self._bars.remove_task(task_id)

    def note(self, message: str) -> None:
        from rich.text import Text

        self._bars.console.print(Text(harmless_message(message)))


class _LineTask:
    """Prints the progress of a step every ten seconds."""

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

    def show(self, state: str) -> None:
        print_note(f"{self._description}: {state}")

    def follow(self, state: Callable[[], str]) -> None:
        """Nothing: lines are for what has changed."""


class _LineProgress:
    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        started = time.monotonic()
        from channel_tools.system.progress import format_amount

        extent = "" if total is None else f" ({format_amount(total, unit)})"
        print_note(f"{description}{extent} ...")
        yield _LineTask(description, _Amount(total, unit))
        print_note(f"{description}: done in {time.monotonic() - started:.1f} s")

    def note(self, message: str) -> None:
        print_note(message)
