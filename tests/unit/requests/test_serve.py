# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.requests.serve import ServeRequest
from channel_tools.system.settings import available_cores


def test_a_server_has_a_process_for_each_core_unless_told_otherwise() -> None:
    assert ServeRequest(folder=Path("channels")).worker_count == available_cores()
    assert ServeRequest(folder=Path("channels"), workers=3).worker_count == 3


def test_the_folder_is_the_same_wherever_a_worker_runs() -> None:
    assert ServeRequest(folder=Path("channels")).root == Path.cwd() / "channels"
