# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.audit import prefix, run
from tests.support.processes import run_here


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits start no processes; one test of each file, and those of the command, leave them to."""
    for module in (run, prefix):
        monkeypatch.setattr(module, "run_in_processes", run_here)
