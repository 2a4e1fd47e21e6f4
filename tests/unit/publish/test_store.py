# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import threading

import pytest

from channel_tools.publish.store import in_parallel, served_package


def test_results_are_in_the_order_of_the_items() -> None:
    assert in_parallel(str, range(100)) == [str(number) for number in range(100)]


def test_the_first_error_in_order_is_raised_and_every_thread_has_ended() -> None:
    def fail(number: int) -> None:
        if number % 3 == 2:
            raise ValueError(number)

    before = threading.active_count()
    with pytest.raises(ValueError, match=r"^2$"):
        in_parallel(fail, range(50))
    assert threading.active_count() == before


def test_a_package_is_kept_by_caches_for_good() -> None:
    assert "immutable" in served_package("0" * 64).cache_control
