# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every test: the programs that tests start and interrupt hear an interrupt."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Undo an ignored SIGINT: shells start background jobs so, and the programs that tests start would inherit it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
