# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.requests.plan import PlanRequest
from channel_tools.requests.publish import PublishRequest
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize(
    "plan",
    [PlanRequest(stack="udp"), PlanRequest(every_stack=True), PlanRequest(packages=("a",))],
    ids=["stack", "all", "package"],
)
def test_files_and_a_stack_are_not_published_together(plan: PlanRequest) -> None:
    with pytest.raises(UsageError, match="package files or a stack, not both"):
        PublishRequest(target="there", files=(Path("a.conda"),), plan=plan)


def test_only_files_have_a_foundation_of_their_own() -> None:
    with pytest.raises(UsageError, match="--foundation without package files"):
        PublishRequest(target="there", foundation="conda-forge")
    assert PublishRequest(target="there", files=(Path("a.conda"),), foundation="conda-forge").label == "main"
