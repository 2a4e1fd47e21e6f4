# SPDX-License-Identifier: BSD-3-Clause
"""What holds for every test: programs that tests start hear an interrupt, and keep what Python compiles."""

from __future__ import annotations

import os
import signal


def pytest_configure() -> None:
    """Undo an ignored SIGINT: shells start background jobs so, and the programs that tests start would inherit it.

    Ranks import PyTorch hundreds of times; where its modules are compiled anew each time, half of the run goes there.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
