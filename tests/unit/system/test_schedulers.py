# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.system.schedulers import SchedulerName, remedy_for, scheduler_of


@pytest.mark.parametrize("name", ["slurm", "pbs"])
def test_a_scheduler_is_found_by_its_name(name: SchedulerName) -> None:
    assert scheduler_of(name, {}).name == name


def test_a_reason_that_is_not_known_has_no_remedy() -> None:
    assert remedy_for("the moon is full") == ""
