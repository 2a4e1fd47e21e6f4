# SPDX-License-Identifier: BSD-3-Clause
"""Progress reports of long steps; the command line decides how they look, libraries only call them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Unit = Literal["bytes", "items"]
Note = Callable[[str], None]
"""Takes a line for the user, such as what was left out."""
_KILO = 1000
_MINUTE_S = 60
_HOUR_S = 3600


def ignore(message: str) -> None:
    """The Note of callers for whom nothing that is said matters."""
    del message


def format_amount(amount: int, unit: Unit) -> str:
    """An amount as text: ``12`` for items; bytes in decimal units, as download tools print them."""
    if unit == "items":
        return str(amount)
    value = float(amount)
    for name in ("B", "kB", "MB"):
        if value < _KILO:
            return f"{value:.0f} {name}"
        value /= _KILO
    return f"{value:.2f} GB"


def duration_in_words(seconds: float) -> str:
    """``40 s``, ``12 min`` or ``3 h 05 min``."""
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    minutes = round(seconds / _MINUTE_S)
    if seconds < _HOUR_S:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class Task(Protocol):
    """One running step."""

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        """Report that ``amount`` more is done; ``detail`` names what is being worked on. Any thread may call it."""

    def show(self, state: str) -> None:
        """Report the state of the step in words, if it has changed: beside the bar, or as a line."""

    def follow(self, state: Callable[[], str]) -> None:
        """Where the display is drawn again and again, show what ``state`` returns then, in any thread."""


class Progress(Protocol):
    """Receives the reports of steps."""

    def task(
        self, description: str, *, total: int | None, unit: Unit = "items"
    ) -> contextlib.AbstractContextManager[Task]:
        """Start a step of ``total`` units (None: unknown), which is shown until the block ends."""

    def note(self, message: str) -> None:
        """Show a line of text, for example what is about to be downloaded, or what was skipped."""


class _SilentTask:
    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        """Do nothing."""

    def show(self, state: str) -> None:
        """Do nothing."""

    def follow(self, state: Callable[[], str]) -> None:
        """Do nothing."""


class SilentProgress:
    """Reports nothing: for library use and tests."""

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        """Run the block without reporting."""
        del description, total, unit
        yield _SilentTask()

    def note(self, message: str) -> None:
        """Drop the line."""


class NotesOnly(SilentProgress):
    """Shows nothing and collects the notes, for a process whose output another process shows."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        """Keep the line."""
        self.notes.append(message)


class GrowthReport:
    """Reports to a task how many bytes of the wanted files have arrived, never counting a file twice.

    For programs that download files and show their own progress: the sizes of the files are watched instead.
    """

    def __init__(self, task: Task, folders: Sequence[Path], names: Iterable[str]) -> None:
        self._task = task
        self._folders = folders
        self._names = frozenset(names)
        self._reported = 0

    def poll(self) -> None:
        """Check the folders and report what is new."""
        sizes: dict[str, int] = {}
        for folder in self._folders:
            for parent, _, names in os.walk(folder):  # unlike glob, it tolerates folders that disappear in the meantime
                for name in self._names.intersection(names):
                    sizes[name] = max(sizes.get(name, 0), _size(Path(parent, name)))
        total = sum(sizes.values())
        if total > self._reported:
            self._task.advance(total - self._reported)
            self._reported = total


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed since it was listed
        return 0
