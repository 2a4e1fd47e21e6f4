# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from channel_tools.system.progress import GrowthReport, duration_in_words
from tests.unit.foundation.registries import NotedProgress

if TYPE_CHECKING:
    from pathlib import Path


def test_growth_is_reported_once_also_when_the_file_moves(tmp_path: Path) -> None:
    progress = NotedProgress()
    with progress.task("files", total=10) as task:
        report = GrowthReport(task, [tmp_path], ["x.whl"])
        (tmp_path / "temporary").mkdir()
        (tmp_path / "temporary" / "x.whl").write_bytes(b"1234")
        (tmp_path / "other").write_bytes(b"12345678")
        report.poll()
        assert progress.advanced == {"files": 4}
        (tmp_path / "temporary" / "x.whl").rename(tmp_path / "x.whl")
        report.poll()
        (tmp_path / "x.whl").write_bytes(b"1234567890")
        report.poll()
    assert progress.advanced == {"files": 10}


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    progress = NotedProgress()
    with progress.task("files", total=None) as task:
        GrowthReport(task, [tmp_path / "absent"], ["x"]).poll()
    assert progress.advanced == {}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1 h 00 min"), (11100, "3 h 05 min")],
)
def test_durations_are_as_exact_as_they_need_to_be(seconds: float, words: str) -> None:
    assert duration_in_words(seconds) == words
