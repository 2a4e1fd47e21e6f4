# SPDX-License-Identifier: BSD-3-Clause
"""The page stage: a channel folder as a static site, beside the files that conda clients read."""

from channel_tools.page.model import ShownBandwidth, ShownCheck, ShownRun, ShownStack, TreeRecords
from channel_tools.page.write import PageReport, add_page, has_page, refresh_page, remember_records

__all__ = [
    "PageReport",
    "ShownBandwidth",
    "ShownCheck",
    "ShownRun",
    "ShownStack",
    "TreeRecords",
    "add_page",
    "has_page",
    "refresh_page",
    "remember_records",
]
