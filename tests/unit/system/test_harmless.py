# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import json
import unicodedata

import pytest

from channel_tools.system.harmless import harmless, harmless_line, harmless_message


def test_controls_are_written_as_json_reads_them() -> None:
    text = "\x1b[2J\x07 \u202e\u2028 b"
    assert harmless(text) == r"\u001b[2J\u0007 \u202e\u2028 b"
    assert json.loads(f'"{harmless(text)}"') == text


def test_lines_and_tabs_stay_or_are_marked_as_not_ours() -> None:
    text = "one\ttwo\nerror: three"
    assert harmless(text) == text
    assert harmless_message(text) == "one\ttwo\n    error: three"
    assert harmless_line(text) == "one\ttwo\\u000aerror: three"


@pytest.mark.parametrize("category", ["Cc", "Zl", "Zp"])
def test_no_character_of_a_category_of_controls_is_left(category: str) -> None:
    characters = [chr(code) for code in range(0x3000) if unicodedata.category(chr(code)) == category]
    assert characters
    assert [one for one in characters if harmless(one) == one and one not in "\t\n"] == []
