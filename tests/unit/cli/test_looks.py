# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.cli.looks import style_of


def test_a_state_has_one_colour_in_any_case_and_other_texts_have_none() -> None:
    assert style_of(" Failed ") == style_of("damaged") == "bold red"
    assert style_of("ok") != style_of("failed") != style_of("waiting") != style_of("skipped")
    assert style_of("libswitchml") == style_of("") == ""
