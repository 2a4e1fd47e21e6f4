# SPDX-License-Identifier: BSD-3-Clause
"""What a process is in a group of PyTorch's; apart from the plugin, whose report takes it too."""

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupMembership:
    """The rank of this process in a group, and the group's own time limit if it is known."""

    rank: int
    size: int
    timeout: timedelta | None
