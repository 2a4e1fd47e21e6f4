# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.foundation.summaries import summary_of


def test_a_package_of_the_table_has_a_line_and_another_has_none() -> None:
    line = summary_of("zlib")
    assert line
    assert "\n" not in line
    assert summary_of("there-is-none") == ""
