# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from channel_tools.channel.model import RECORD_FOLDER
from channel_tools.channel.results import (
    BuildRecord,
    last_built,
    read_builds,
    record_build,
)

if TYPE_CHECKING:
    from pathlib import Path

BUILD = BuildRecord(file_name="toy-1.0-h1_0.conda", finished="2026-01-01T00:00:00+00:00", seconds=2.5)


def test_the_last_result_of_each_is_kept(tmp_path: Path) -> None:
    assert read_builds(tmp_path) == {}
    (tmp_path / RECORD_FOLDER).mkdir()
    for build in (BUILD, replace(BUILD, seconds=3.0)):
        record_build(tmp_path, build)
    assert read_builds(tmp_path) == {BUILD.file_name: replace(BUILD, seconds=3.0)}


def test_what_some_builds_took_is_known_if_it_is_of_each() -> None:
    later = replace(BUILD, finished="2026-02-03T00:00:00+00:00", seconds=3.0)
    assert last_built([later, BUILD]) == ("2026-02-03", 5.5)
    assert last_built([later, replace(BUILD, seconds=None)]) == ("2026-02-03", None)
