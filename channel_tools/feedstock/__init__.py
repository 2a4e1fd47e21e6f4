# SPDX-License-Identifier: BSD-3-Clause
"""The feedstock stage: writes a recipe of the tree as its own repository, in the form that conda-smithy needs."""

from channel_tools.feedstock.write import Feedstock, write_feedstock

__all__ = ["Feedstock", "write_feedstock"]
