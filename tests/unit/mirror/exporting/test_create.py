# SPDX-License-Identifier: BSD-3-Clause
"""Where a bundle may be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.mirror.exporting.create import check_destination
from channel_tools.system.errors import UsageError


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_folder_without_a_name_of_its_own_is_no_place_for_a_bundle(place: str) -> None:
    with pytest.raises(UsageError, match="already exists"):
        check_destination(Path(place))
