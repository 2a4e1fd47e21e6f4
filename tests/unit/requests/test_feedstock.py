# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

from channel_tools.requests.feedstock import FeedstockRequest


def test_a_feedstock_is_for_every_stack_and_solved_from_conda_forge_unless_told_otherwise() -> None:
    request = FeedstockRequest(package="toy", destination=Path("toy-feedstock"), maintainers=("octocat",))
    assert (request.stack, request.channels, request.homepage) == (None, ("conda-forge",), None)
