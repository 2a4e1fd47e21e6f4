# SPDX-License-Identifier: BSD-3-Clause
"""SIGTERM and SIGHUP as exceptions, so that they unwind like Ctrl-C: locks released, children ended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


EXIT_SIGNAL_BASE = 128
"""What a shell adds to a signal's number for the exit code of a process that it ended."""
EXIT_BROKEN_PIPE = EXIT_SIGNAL_BASE + signal.SIGPIPE
"""The reader of the output has gone."""


class Terminated(KeyboardInterrupt):
    """A signal asked the process to end; ``number`` says which."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def raise_on_termination() -> None:
    """From now on SIGTERM and SIGHUP raise Terminated in the main thread."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_terminated)


def _raise_terminated(number: int, _frame: FrameType | None) -> NoReturn:
    raise Terminated(number)
