# SPDX-License-Identifier: BSD-3-Clause
"""py-rattler's installation callbacks, told as one step of so many packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from channel_tools.progress import Task


class TransactionReporter:
    """Advances ``task`` by one for every package done; called from the installer's threads.

    It has the callbacks that matter here; py-rattler passes over those that are absent.
    """

    def __init__(self, task: Task) -> None:
        self._task = task

    def on_populate_cache_start(self, operation: int, package_name: str) -> int:
        """A package is being unpacked."""
        del operation
        self._task.advance(0, detail=package_name)
        return 0

    def on_link_start(self, operation: int, package_name: str) -> int:
        """A package is being linked."""
        del operation
        self._task.advance(0, detail=package_name)
        return 0

    def on_transaction_operation_complete(self, operation: int) -> None:
        """A package is done."""
        del operation
        self._task.advance()
