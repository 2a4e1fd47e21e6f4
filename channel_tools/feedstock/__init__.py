# SPDX-License-Identifier: BSD-3-Clause
"""The feedstock stage: one recipe of the tree as a repository of its own, in the form that conda-smithy takes."""

from channel_tools.feedstock.write import Feedstock, FeedstockRequest, write_feedstock

__all__ = ["Feedstock", "FeedstockRequest", "write_feedstock"]
