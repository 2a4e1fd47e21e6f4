# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the page's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from channel_tools.channel.model import Channel
from tests.support.packages import new_channel
from tests.unit.page.sites import publish, toys


@pytest.fixture
def channel(tmp_path: Path) -> Channel:
    """A channel with toy packages, without a page."""
    channel = new_channel(tmp_path)
    publish(channel, *toys(tmp_path / "made"))
    return channel
