# SPDX-License-Identifier: BSD-3-Clause
"""The page stage: a channel folder as a static site, beside the files that conda clients read."""

from channel_tools.page.model import ShownStack
from channel_tools.page.write import PageReport, add_page, refresh_page

__all__ = ["PageReport", "ShownStack", "add_page", "refresh_page"]
