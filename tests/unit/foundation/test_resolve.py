# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from typing import TYPE_CHECKING

from channel_tools.foundation.resolve import optional_requirements, wheel_requirements
from tests.unit.foundation.archives import make_table

if TYPE_CHECKING:
    from pathlib import Path


def test_an_optional_wheel_is_no_requirement_of_every_foundation(tmp_path: Path) -> None:
    rows = "demo: {wheels: [demo]}\nplugin: {wheels: [plugin], optional: true, depends: [demo], drop: [x]}"
    assert wheel_requirements(make_table(tmp_path, rows)) == ("demo",)


def test_the_wheel_of_an_optional_row_is_required_with_the_row_that_needs_it(tmp_path: Path) -> None:
    rows = """
tool: {version: '2', optional: true, depends: ['part {version:part}']}
part: {wheels: [part], optional: true}
"""
    table = make_table(tmp_path, rows)
    assert (wheel_requirements(table), optional_requirements(table)) == ((), ())
    asking = table.asking({"tool"})
    assert (wheel_requirements(asking), optional_requirements(asking)) == ((), ("part",))
