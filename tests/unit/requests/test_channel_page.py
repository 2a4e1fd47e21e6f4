# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from dataclasses import asdict

from channel_tools.requests.channel_page import PageRequest


def test_whatever_is_not_given_stays_as_it_was() -> None:
    given = {name: value for name, value in asdict(PageRequest(title="Lab")).items() if value is not None}
    assert given == {"label": "main", "title": "Lab"}
