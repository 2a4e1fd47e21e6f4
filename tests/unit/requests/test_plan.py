# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.requests.plan import PlanRequest


@pytest.mark.parametrize(
    ("request_", "options", "words"),
    [
        (PlanRequest(), (), "the default stack"),
        (PlanRequest(stack="udp"), ("--variant", "udp"), "stack udp"),
        (PlanRequest(stack="udp", every_stack=True), ("--all",), "all stacks"),
        (PlanRequest(packages=("a", "b")), ("--package", "a", "--package", "b"), "a, b of the default stack"),
        (PlanRequest(all_variants=True), ("--all-variants",), "the default stack"),
        (PlanRequest(python="3.12", pytorch="2.9"), ("--python", "3.12", "--pytorch", "2.9"), "the default stack"),
    ],
    ids=["default", "stack", "all", "packages", "all variants", "variant"],
)
def test_a_request_says_its_options_and_is_said_in_words(
    request_: PlanRequest, options: tuple[str, ...], words: str
) -> None:
    assert (request_.options, request_.in_words) == (options, words)
