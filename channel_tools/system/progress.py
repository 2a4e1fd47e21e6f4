# SPDX-License-Identifier: BSD-3-Clause
"""What a long step reports while it runs; the command line decides how it looks, libraries only call it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Unit = Literal["bytes", "items"]
_KILO = 1000


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


class Task(Protocol):
    """One running step."""

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        """Say that ``amount`` more of the unit is done; ``detail`` names what is under way. Any thread may."""

    def show(self, state: str) -> None:
        """Say in words how far the step is, where that has changed: beside the bar, or as a line."""


class Progress(Protocol):
    """Where steps are reported."""

    def task(
        self, description: str, *, total: int | None, unit: Unit = "items"
    ) -> contextlib.AbstractContextManager[Task]:
        """A step of ``total`` units (None: unknown), shown until the block ends."""

    def note(self, message: str) -> None:
        """One plain line for the reader: what is about to be downloaded, what was skipped."""


class _SilentTask:
    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        """Nothing to show."""

    def show(self, state: str) -> None:
        """Nothing to show."""


class SilentProgress:
    """Reports nowhere: for library use and tests."""

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        """Run the block."""
        del description, total, unit
        yield _SilentTask()

    def note(self, message: str) -> None:
        """Drop the line."""


class NotesOnly(SilentProgress):
    """Shows nothing and keeps the notes, for a process whose reader is elsewhere."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        """Keep the line."""
        self.notes.append(message)


class GrowthReport:
    """Reports to a task how many bytes of the wanted files have come, never counting a file twice.

    For programs that download and draw their own progress in their own ways: the sizes of their files are the same.
    """

    def __init__(self, task: Task, folders: Sequence[Path], wanted: Iterable[str]) -> None:
        self._task = task
        self._folders = folders
        self._wanted = frozenset(wanted)
        self._reported = 0

    def poll(self) -> None:
        """Look at the folders and report what is new."""
        sizes: dict[str, int] = {}
        for folder in self._folders:
            for here, _, names in os.walk(folder):  # which, unlike glob, bears folders that go away meanwhile
                for name in self._wanted.intersection(names):
                    sizes[name] = max(sizes.get(name, 0), _size(Path(here, name)))
        total = sum(sizes.values())
        if total > self._reported:
            self._task.advance(total - self._reported)
            self._reported = total


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # renamed since it was listed
        return 0
