# SPDX-License-Identifier: BSD-3-Clause
"""What a long step reports while it runs; the command line decides how it looks, libraries only call it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

Unit = Literal["bytes", "items"]


class Task(Protocol):
    """One running step."""

    def advance(self, amount: int = 1, *, detail: str | None = None) -> None:
        """Say that ``amount`` more of the unit is done; ``detail`` names what is under way."""


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


class SilentProgress:
    """Reports nowhere: for library use and tests."""

    @contextlib.contextmanager
    def task(self, description: str, *, total: int | None, unit: Unit = "items") -> Iterator[Task]:
        """Run the block."""
        del description, total, unit
        yield _SilentTask()

    def note(self, message: str) -> None:
        """Drop the line."""
