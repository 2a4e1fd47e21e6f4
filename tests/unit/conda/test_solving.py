# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.conda.solving import gateway_error, one_line, parse_spec, shown_channels, solve_error
from channel_tools.system.errors import ChannelToolsError, NetworkError, SolveError, UsageError

CHANNELS = ["https://user:secret@conda.example/lab"]


def test_a_match_spec_that_is_none_is_the_users_error() -> None:
    assert parse_spec("python >=3.11").name is not None
    with pytest.raises(UsageError):
        parse_spec("python >=>=3")


def test_a_long_explanation_is_cut_and_names_what_was_asked_for() -> None:
    explanation = "\n".join(f"line {number}" for number in range(100))
    error = solve_error(Exception(explanation), specs=["toy"], channels=CHANNELS)
    assert isinstance(error, SolveError)
    assert "line 1" in error.message
    assert "line 99" not in error.message


def test_no_credentials_are_shown() -> None:
    assert shown_channels(CHANNELS) == "https://conda.example/lab"
    assert "secret" not in one_line(Exception(f"dns error: {CHANNELS[0]}/noarch"))
    unreachable: ChannelToolsError = gateway_error(Exception("error sending request"), channels=CHANNELS)
    assert isinstance(unreachable, NetworkError)
    assert "secret" not in unreachable.message
