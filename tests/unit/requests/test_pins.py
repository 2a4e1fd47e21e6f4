# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import pytest

from channel_tools.requests.pins import PinRequest
from channel_tools.system.errors import UsageError


def test_packages_are_named_only_to_update_them() -> None:
    assert PinRequest(packages=("libtoy",), update=True).packages == ("libtoy",)
    with pytest.raises(UsageError, match="libtoy other: package names need --update"):
        PinRequest(packages=("libtoy", "other"))
