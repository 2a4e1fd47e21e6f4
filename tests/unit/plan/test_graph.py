# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channel_tools.plan.graph import CycleFoundError, topological_order


def test_needs_come_first_and_the_given_order_decides_the_rest() -> None:
    needs = {"app": ["lib", "tool"], "free": [], "tool": ["lib"], "lib": ["gcc"]}
    assert topological_order(needs) == ["lib", "tool", "app", "free"]


def test_names_from_outside_and_of_itself_are_ignored() -> None:
    assert topological_order({"a": ["a", "python"]}) == ["a"]


@pytest.mark.parametrize(
    ("needs", "cycle"),
    [
        ({"a": ["b"], "b": ["a"]}, ("a", "b", "a")),
        ({"start": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, ("a", "b", "c", "a")),
    ],
)
def test_a_cycle_is_named_without_what_only_leads_to_it(needs: dict[str, list[str]], cycle: tuple[str, ...]) -> None:
    with pytest.raises(CycleFoundError) as caught:
        topological_order(needs)
    assert caught.value.cycle == cycle


@settings(deadline=None)
@given(
    st.integers(1, 12).flatmap(lambda size: st.lists(st.frozensets(st.integers(0, size)), min_size=size, max_size=size))
)
def test_every_order_respects_every_need(raw: list[frozenset[int]]) -> None:
    needs = {str(index): [str(other) for other in others if other < index] for index, others in enumerate(raw)}
    order = topological_order(needs)
    assert sorted(order) == sorted(needs)
    assert all(order.index(need) < order.index(name) for name in needs for need in needs[name])
