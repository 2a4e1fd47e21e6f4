# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.build.forecast import chains_s, duration_in_words, state_in_words, time_left
from channel_tools.build.model import BuildJob


def job(name: str, expected_s: float | None, *waits_for: str) -> BuildJob:
    return BuildJob(
        file_name=f"{name}.conda",
        subdir="noarch",
        recipe_folder=Path(),
        waits_for=tuple(f"{other}.conda" for other in waits_for),
        expected_s=expected_s,
    )


def test_the_time_left_is_that_of_the_longest_chain() -> None:
    jobs = [job("d", 5, "b", "c"), job("b", 10, "a"), job("c", 40), job("a", 20, "finished"), job("alone", 41)]
    assert time_left(jobs, {}) == 45
    assert time_left(jobs, {"c": 30, "a": 15}) == 41
    assert time_left(jobs, {"c": 30, "a": 15, "alone": 100}) == 20
    assert time_left([], {}) == 0


def test_the_time_left_is_not_known_where_that_of_one_build_is_not() -> None:
    assert time_left([job("a", 20), job("b", None)], {"b": 5}) is None


def test_a_long_chain_is_no_deeper_than_a_short_one() -> None:
    jobs = [job("0", 1), *(job(str(number), 1, str(number - 1)) for number in range(1, 2000))]
    assert time_left(jobs, {}) == 2000


def test_a_build_begins_the_chain_of_those_that_wait_for_it() -> None:
    jobs = [job("d", 5, "b", "c"), job("b", 10, "a"), job("c", 40), job("a", 20, "finished"), job("e", None, "a")]
    assert chains_s(jobs) == {"d.conda": 5, "b.conda": 15, "c.conda": 45, "a.conda": 200, "e.conda": 180}
    assert chains_s([]) == {}


def test_the_state_is_one_line() -> None:
    assert state_in_words(done=3, failed=0, running=2, waiting=5, left_s=725) == (
        "3 done, 2 running, 5 waiting; at least 12 min left"
    )
    assert state_in_words(done=3, failed=1, running=2, waiting=5, left_s=None) == (
        "3 done, 1 failed or held back, 2 running, 5 waiting; time left unknown"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3599, "60 min"), (3600, "1 h 00 min"), (11100, "3 h 05 min")],
)
def test_durations_are_as_exact_as_they_need_to_be(seconds: float, words: str) -> None:
    assert duration_in_words(seconds) == words
