# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.requests.environment import InstallRequest
from channel_tools.requests.inventory import InventoryRequest
from channel_tools.system.errors import UsageError


def test_the_part_of_a_lock_is_chosen() -> None:
    request = InventoryRequest(target=Path("conda-lock.yml"), platform="linux-aarch64", categories=("dev",))
    assert request.choice.platforms == ("linux-aarch64",)
    assert "dev" in request.choice.categories


def test_a_file_or_a_stack_is_listed_and_not_both() -> None:
    with pytest.raises(UsageError, match="a path and --variant together"):
        InventoryRequest(target=Path("conda-lock.yml"), install=InstallRequest(stack="udp"))
