# SPDX-License-Identifier: BSD-3-Clause
"""The page stage: a channel folder as a static site, beside the files that conda clients read."""

from channel_tools.page.model import ShownBandwidth, ShownCheck, ShownRun, ShownStack, TreeRecords
from channel_tools.page.write import (
    SETTINGS,
    PagedChannel,
    PageReport,
    add_page,
    follow_change,
    paged_folder,
    remember_records,
)

__all__ = [
    "SETTINGS",
    "PageReport",
    "PagedChannel",
    "ShownBandwidth",
    "ShownCheck",
    "ShownRun",
    "ShownStack",
    "TreeRecords",
    "add_page",
    "follow_change",
    "paged_folder",
    "remember_records",
]
