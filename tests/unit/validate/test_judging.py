# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.validate.judging import numbers_in_words, problems_check, spread_of


def test_quartiles_are_interpolated() -> None:
    spread = spread_of([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (spread.lower, spread.median, spread.upper) == (2.0, 3.0, 4.0)


def test_a_check_fails_with_any_problem_and_shows_the_first_three() -> None:
    passed = problems_check("links", [], expected="none broken")
    assert (passed.passed, passed.found) == (True, "none broken")
    failed = problems_check("links", ["a", "b", "c", "d"], expected="none broken")
    assert (failed.passed, failed.found, failed.expected) == (False, "a; b; c", "none broken")


@pytest.mark.parametrize(("values", "words"), [({}, "none"), ({"int32": 4, "float32": 3}, "float32 3, int32 4")])
def test_numbers_are_said_in_order(values: dict[str, int], words: str) -> None:
    assert numbers_in_words(values) == words
