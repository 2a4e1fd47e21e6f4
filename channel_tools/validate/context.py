# SPDX-License-Identifier: BSD-3-Clause
"""What a validation method works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from channel_tools.progress import Progress
    from channel_tools.validate.processes import Deadline


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodContext:
    """An installed environment, the variables of its activation, and where and how long to run."""

    stack: str
    prefix: Path
    variables: Mapping[str, str]
    ranks: int
    options: Mapping[str, object]
    folder: Path
    """Of this run alone: logs, plan and results."""
    deadline: Deadline
    progress: Progress
