# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from channel_tools.requests.foundation import FoundationRequest
from channel_tools.system.settings import available_cores


def test_as_many_packages_are_made_at_once_as_there_are_cores_unless_another_number_is_given() -> None:
    assert FoundationRequest().packages_at_once == available_cores()
    assert FoundationRequest(jobs=7).packages_at_once == 7
